"""Names of metrics and attributes: listed once, and those of OpenTelemetry's conventions where these have one."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import opentelemetry.semconv
import pytest

from chassis.telemetry import semconv
from chassis.telemetry.semconv import Kind, Metric

ROOT = Path(__file__).parents[2]
SOURCES = [*ROOT.glob("services/*/src"), ROOT / "employee-api/src"]
_NAME = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+")
# Names of ours that the conventions' Python package does not have.
NOT_IN_THE_PACKAGE = {
    semconv.SYNTHETIC_REQUEST: "set by OpenTelemetry's own demo for requests of its load generator",
}
_CONSTANT = re.compile(r'^[A-Z0-9_]+: Final = \(?\s*"([a-z0-9_.]+)"', re.MULTILINE)
_DOCUMENTED = re.compile(_CONSTANT.pattern + r'\s*\)?\n"""(.*?)"""', re.MULTILINE | re.DOTALL)


@cache
def conventions() -> str:
    """Return the sources of the modules in which the conventions' Python package names attributes and metrics."""
    folder = Path(opentelemetry.semconv.__path__[0])
    modules = [*folder.rglob("*_attributes.py"), *folder.rglob("*_metrics.py")]
    return "\n".join(path.read_text(encoding="utf-8") for path in modules)


@cache
def convention_names() -> frozenset[str]:
    return frozenset(_CONSTANT.findall(conventions()))


@cache
def convention_instruments() -> dict[str, tuple[str, str]]:
    """Return kind and unit of each metric of the conventions, which follow its name as text."""
    found = {}
    for name, text in _DOCUMENTED.findall(conventions()):
        kind, unit = re.search(r"Instrument: (\w+)", text), re.search(r"Unit: (\S+)", text)
        if kind and unit:
            found[name] = (kind[1], unit[1])
    return found


def literals(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_no_other_module_spells_out_a_name() -> None:
    names = {*semconv.ATTRIBUTES, *(metric.name for metric in semconv.METRICS)}
    spelled = {
        f"{path.relative_to(ROOT)}: {literal}"
        for folder in SOURCES
        for path in folder.rglob("*.py")
        if path.name != "semconv.py"
        for literal in literals(path)
        if literal in names
    }
    assert spelled == set()


@pytest.mark.parametrize("name", [*semconv.ATTRIBUTES, *(metric.name for metric in semconv.METRICS)])
def test_a_name_is_one_of_the_conventions_or_of_the_shop(name: str) -> None:
    if name in NOT_IN_THE_PACKAGE:
        assert name not in convention_names()
        return
    assert _NAME.fullmatch(name)
    assert name.startswith("shop.") or name in convention_names()


def test_names_are_listed_once() -> None:
    for names in (semconv.ATTRIBUTES, [metric.name for metric in semconv.METRICS]):
        assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize(
    "metric", [each for each in semconv.METRICS if not each.name.startswith("shop.")], ids=lambda metric: metric.name
)
def test_a_metric_of_the_conventions_has_their_kind_and_unit(metric: Metric) -> None:
    kind = "updowncounter" if metric.kind is Kind.UP_DOWN_COUNTER else metric.kind.value
    assert (kind, metric.unit) == convention_instruments()[metric.name]


@pytest.mark.parametrize("metric", semconv.METRICS, ids=lambda metric: metric.name)
def test_metrics_have_listed_attributes_only(metric: Metric) -> None:
    assert set(metric.attributes) <= set(semconv.ATTRIBUTES)
