"""Each case of renders.yaml: values, and parts of the objects that the chart renders with them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

CASES: list[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("renders.yaml").read_text())


def differences(expected: Any, found: Any, path: str) -> Iterator[str]:
    """Yield where `found` lacks something expected. Each item of a list must be one of the list; `null` is no value."""
    if isinstance(expected, dict) and isinstance(found, dict):
        for key, value in expected.items():
            yield from differences(value, found.get(key), f"{path}.{key}")
    elif isinstance(expected, list) and isinstance(found, list):
        for item in expected:
            if all(any(differences(item, each, path)) for each in found):
                yield f"{path} has no {item}: {found}"
    elif expected != found or type(expected) is not type(found):
        yield f"{path} is {found!r}, not {expected!r}"


def rendered(manifests: Any, kind: str, name: str) -> Any:
    """Return an object, or a part of a component's: its pod, container or variables, or the content of its file."""
    if kind == "pod":
        return manifests.pod(name)
    if kind == "container":
        return manifests.container(name)
    if kind == "variables":
        return {
            variable: entry.get("value", entry.get("valueFrom"))
            for variable, entry in manifests.variables(name).items()
        }
    if kind == "config":
        component, _, file = name.partition("/")
        return manifests.config(component, file)
    return manifests.one(kind, f"shop-{name}") if manifests.has(kind, f"shop-{name}") else None


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["about"])
def test_the_chart_renders(render: Any, case: dict[str, Any]) -> None:
    manifests = render(case.get("values"))
    wrong: list[str] = []
    notes = case.get("notes", {})
    wrong += [text for text in notes.get("has", ()) if text not in manifests.notes]
    wrong += [text for text in notes.get("lacks", ()) if text in manifests.notes]
    for kind, expected in case.items():
        if kind not in {"about", "values", "notes"}:
            for name, part in expected.items():
                wrong += differences(part, rendered(manifests, kind, name), f"{kind} {name}")
    assert wrong == []
