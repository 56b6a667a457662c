"""Names of metrics and attributes: listed once, and those of OpenTelemetry's conventions where these have one."""

import ast
import re
from pathlib import Path

import opentelemetry.semconv

from chassis.telemetry import semconv
from chassis.telemetry.semconv import Kind

ROOT = Path(__file__).parents[2]
SOURCES = [*ROOT.glob("services/*/src"), ROOT / "employee-api/src"]
NAMES = [*semconv.ATTRIBUTES, *(metric.name for metric in semconv.METRICS)]
CONVENTIONS = "\n".join(
    path.read_text()
    for pattern in ("*_attributes.py", "*_metrics.py")
    for path in Path(opentelemetry.semconv.__path__[0]).rglob(pattern)
)
CONSTANT = r'^[A-Z0-9_]+: Final = \(?\s*"([a-z0-9_.]+)"'
# Set by OpenTelemetry's own demo for requests of its load generator; the conventions' package does not have it.
OF_THE_DEMO = {semconv.SYNTHETIC_REQUEST}


def test_no_other_module_spells_out_a_name() -> None:
    spelled = {
        f"{path}: {node.value}"
        for folder in SOURCES
        for path in folder.rglob("*.py")
        if path.name != "semconv.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in NAMES
    }
    assert spelled == set()


def test_names_are_listed_once_and_are_those_of_the_conventions_or_the_shop_s() -> None:
    assert sorted(NAMES) == sorted(set(NAMES))
    malformed = {name for name in NAMES if not re.fullmatch(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+", name)}
    assert malformed <= OF_THE_DEMO
    foreign = {name for name in NAMES if not name.startswith("shop.")}
    assert foreign - set(re.findall(CONSTANT, CONVENTIONS, re.MULTILINE)) == OF_THE_DEMO


def test_a_metric_of_the_conventions_has_their_kind_and_unit() -> None:
    texts = re.findall(CONSTANT + r'\s*\)?\n"""(.*?)"""', CONVENTIONS, re.MULTILINE | re.DOTALL)
    current = {name: text for name, text in texts if "Instrument:" in text}
    for metric in semconv.METRICS:
        if not metric.name.startswith("shop."):
            kind = "updowncounter" if metric.kind is Kind.UP_DOWN_COUNTER else metric.kind.value
            assert f"Instrument: {kind}\nUnit: {metric.unit}\n" in current[metric.name], metric.name


def test_metrics_have_listed_attributes_only() -> None:
    assert {attribute for metric in semconv.METRICS for attribute in metric.attributes} <= set(semconv.ATTRIBUTES)
