"""Renders the chart offline, with the values of `charts/shop/ci`, and finds objects in what comes out."""

import functools
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "shop"
VALUES_FILES = [*sorted((CHART / "ci").glob("*.yaml")), CHART / "values-production.yaml"]

Object = dict[str, Any]


@dataclass(frozen=True)
class Manifests:
    """What a render made; hooks (the pods of `helm test`) apart."""

    objects: list[Object]
    hooks: list[Object]
    notes: str

    def all(self, kind: str) -> list[Object]:
        return [found for found in self.objects if found["kind"] == kind]

    def one(self, kind: str, name: str) -> Object:
        (found,) = [found for found in self.all(kind) if found["metadata"]["name"] == name]
        return found

    def has(self, kind: str, name: str) -> bool:
        return name in {found["metadata"]["name"] for found in self.all(kind)}

    def pod_templates(self) -> Iterator[tuple[str, Object]]:
        """Every pod that the release may run, with the name of what makes it; test pods too."""
        for found in [*self.objects, *self.hooks]:
            if found["kind"] in {"Deployment", "StatefulSet"}:
                yield found["metadata"]["name"], found["spec"]["template"]
            elif found["kind"] == "Pod":
                yield found["metadata"]["name"], found


Helm = Callable[..., Any]
Render = Callable[..., Manifests]


@pytest.fixture(scope="session")
def helm() -> Iterator[Helm]:
    """Call one of Helm's functions on the chart; raises ValueError with Helm's own words."""
    command = [sys.executable, str(Path(__file__).with_name("helm.py")), str(CHART)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        assert process.stdout

        def call(function: str, **arguments: Any) -> Any:
            print(json.dumps([function, arguments]), file=process.stdin, flush=True)
            answer = json.loads(process.stdout.readline())
            if "error" in answer:
                raise ValueError(answer["error"])
            return answer["result"]

        yield call
        process.stdin.close()


@pytest.fixture(scope="session")
def render(helm: Helm) -> Render:
    @functools.cache
    def rendered_from(values: str, name: str, namespace: str) -> Manifests:
        files = helm("render", values=json.loads(values), name=name, namespace=namespace)
        notes = files.pop("shop/templates/NOTES.txt")
        found = [made for text in files.values() for made in yaml.safe_load_all(text) if made]
        is_hook = [("helm.sh/hook" in made["metadata"].get("annotations", {})) for made in found]
        return Manifests(
            [made for made, hook in zip(found, is_hook, strict=True) if not hook],
            [made for made, hook in zip(found, is_hook, strict=True) if hook],
            notes,
        )

    def rendered(values: Object | None = None, *, name: str = "shop", namespace: str = "shop") -> Manifests:
        return rendered_from(json.dumps(values or {}), name, namespace)

    return rendered


@pytest.fixture(scope="session")
def values() -> Object:
    """The chart's values as shipped."""
    return dict(yaml.safe_load((CHART / "values.yaml").read_text()))


@pytest.fixture(params=VALUES_FILES, ids=lambda file: file.name.removesuffix(".yaml").removesuffix("-values"))
def matrix_values(request: pytest.FixtureRequest) -> Object:
    """The values of one file of the matrix."""
    return dict(yaml.safe_load(request.param.read_text()) or {})
