"""Renders the chart offline, with any values, and finds objects in the result."""

import functools
import hashlib
import json
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "shop"
VALUES_FILES = [*sorted((CHART / "ci").glob("*.yaml")), CHART / "values-production.yaml"]

# Ten times as fast as the one written in Python, which the renders would spend most of their time in.
LOADER = yaml.CSafeLoader

# By default, programs in Go with a small heap take a quarter of their time to collect garbage.
GO_VARIABLES = {**os.environ, "GOGC": "400"}

Object = dict[str, Any]


@dataclass(frozen=True)
class Manifests:
    """The result of a render of release `shop`; hooks, which are the pods of `helm test`, are kept apart."""

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
        """Yield every pod that the release may run, test pods included, with the name of its object."""
        for found in [*self.objects, *self.hooks]:
            if found["kind"] in {"Deployment", "StatefulSet", "Job"}:
                yield found["metadata"]["name"], found["spec"]["template"]
            elif found["kind"] == "CronJob":
                yield found["metadata"]["name"], found["spec"]["jobTemplate"]["spec"]["template"]
            elif found["kind"] == "Pod":
                yield found["metadata"]["name"], found

    def pod(self, service: str) -> Object:
        return dict(self.pod_templates())[f"shop-{service}"]

    def container(self, service: str) -> Object:
        return dict(self.pod(service)["spec"]["containers"][0])

    def config(self, component: str, file: str) -> Any:
        """Return the content of a component's YAML file."""
        return yaml.safe_load(self.one("ConfigMap", f"shop-{component}")["data"][file])

    def variables(self, service: str) -> dict[str, Object]:
        """Return the environment of a service's container by name."""
        return {variable["name"]: variable for variable in self.container(service).get("env", [])}

    def environment(self, service: str) -> dict[str, Any]:
        """Return the plain values in the environment of a service's container; None for references."""
        return {name: variable.get("value") for name, variable in self.variables(service).items()}


def parsed(files: dict[str, str]) -> Manifests:
    """Return the objects in rendered files."""
    notes = "".join(files.pop(path) for path in list(files) if path.endswith("/NOTES.txt"))
    objects = [loaded for text in files.values() for loaded in yaml.load_all(text, LOADER) if loaded]
    hooks = [loaded for loaded in objects if "helm.sh/hook" in loaded["metadata"].get("annotations", {})]
    return Manifests([loaded for loaded in objects if loaded not in hooks], hooks, notes)


@functools.cache
def load_values(file: Path) -> Object:
    return dict(yaml.load(file.read_text(), LOADER) or {})  # noqa: S506 - a subclass of SafeLoader


Helm = Callable[..., Any]
Render = Callable[..., Manifests]


@contextmanager
def opened(chart: Path) -> Iterator[Helm]:
    """Call a Helm function on a chart; raise ValueError with Helm's message if it fails."""
    command, pipe = [sys.executable, str(Path(__file__).with_name("helm.py")), str(chart)], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=GO_VARIABLES) as process:
        requests, responses = process.stdin, process.stdout
        assert requests
        assert responses

        def call(function: str, **arguments: Any) -> Any:
            print(json.dumps([function, arguments]), file=requests, flush=True)
            response = json.loads(responses.readline())
            if "error" in response:
                raise ValueError(response["error"])
            return response["result"]

        yield call
        requests.close()


@pytest.fixture(scope="session")
def helm() -> Iterator[Helm]:
    """Call a Helm function on the shop's chart."""
    with opened(CHART) as call:
        yield call


@pytest.fixture(scope="session")
def render(helm: Helm, tmp_path_factory: pytest.TempPathFactory) -> Render:
    """Render the chart with values, by default those that it ships; the processes of a run share equal renders."""
    of_process = tmp_path_factory.getbasetemp()
    folder = (of_process.parent if "PYTEST_XDIST_WORKER" in os.environ else of_process) / "renders"
    folder.mkdir(exist_ok=True)

    @functools.cache
    def shared(values: str, name: str, namespace: str) -> Manifests:
        file = folder / hashlib.sha256(f"{values}\0{name}\0{namespace}".encode()).hexdigest()
        if not file.exists():
            manifests = parsed(helm("render", values=json.loads(values), name=name, namespace=namespace))
            part = file.with_suffix(f".{os.getpid()}")
            part.write_bytes(pickle.dumps(manifests))
            part.rename(file)
            return manifests
        return cast("Manifests", pickle.loads(file.read_bytes()))  # noqa: S301 - written above

    def rendered(values: Object | None = None, *, name: str = "shop", namespace: str = "shop") -> Manifests:
        return shared(json.dumps(values or {}, sort_keys=True), name, namespace)

    return rendered


@pytest.fixture(scope="session")
def render_chart() -> Callable[[Path, Object], Manifests]:
    """Render any chart with values as release `mall`."""

    def rendered(chart: Path, values: Object) -> Manifests:
        with opened(chart) as helm:
            return parsed(helm("render", values=values, name="mall", namespace="shop"))

    return rendered


@pytest.fixture(scope="session")
def values() -> Object:
    """Return the values that the chart ships."""
    return load_values(CHART / "values.yaml")


@pytest.fixture(params=VALUES_FILES, ids=lambda file: file.name.removesuffix(".yaml").removesuffix("-values"))
def matrix_values(request: pytest.FixtureRequest) -> Object:
    """Return the values of each file of the matrix in turn."""
    return load_values(request.param)


MESHES = [("sidecar", "istio"), ("ambient", "istio"), ("sidecar", "linkerd")]
GATEWAYS = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "gateways"}}}]


@pytest.fixture(params=MESHES, ids=" ".join)
def mesh(request: pytest.FixtureRequest) -> Object:
    """Return the values of a shop in each mesh in turn, with all that can be in it and beside it."""
    mode, policies = request.param
    shop = {"load": {"enabled": True}, "observability": {"enabled": True}, "networkPolicy": {"ingressFrom": GATEWAYS}}
    return {**shop, "mesh": mode, "meshPolicies": policies}


@pytest.fixture(scope="session")
def grpc_services(values: Object) -> list[str]:
    return [name for name, entry in values["services"].items() if (entry or {}).get("protocol", "grpc") == "grpc"]


@pytest.fixture(scope="session")
def database_services(values: Object) -> list[str]:
    return [name for name, entry in values["services"].items() if (entry or {}).get("store") == "postgresql"]


@pytest.fixture(scope="session")
def promtool() -> Callable[..., None]:
    """Run promtool, which must succeed. Without it the test is skipped, or fails if REQUIRE_PROMTOOL is set."""
    script = ROOT / "tests" / "chart" / "promtool.sh"
    version = re.findall(r"^version=(\S+)", script.read_text(), re.MULTILINE)[0]
    program = ROOT / ".cache" / f"promtool-{version}"
    if not program.exists():
        if os.environ.get("REQUIRE_PROMTOOL"):
            pytest.fail(f"{program} is missing: make promtool builds it")
        pytest.skip("promtool is missing: make promtool builds it, with Go")

    def run(*arguments: str | Path) -> None:
        result = subprocess.run([program, *arguments], capture_output=True, text=True, check=False, env=GO_VARIABLES)
        assert result.returncode == 0, result.stdout + result.stderr

    return run


@pytest.fixture(scope="session")
def rule_groups(render: Render) -> Callable[..., list[Object]]:
    """Return the groups of recording rules and alerts that the chart renders with the given values."""

    def groups(*, observability: Object | None = None, **values: Any) -> list[Object]:
        everything = {"enabled": True, "prometheusRule": {"enabled": True}, **(observability or {})}
        manifests = render({"observability": everything, **values})
        return list(manifests.one("PrometheusRule", "shop-rules")["spec"]["groups"])

    return groups


@pytest.fixture(scope="session")
def rules(rule_groups: Callable[..., list[Object]]) -> list[Object]:
    """Return the recording rules and alerts of the chart's own values."""
    return [rule for group in rule_groups() for rule in group["rules"]]
