"""All services have the same shape, and everything that lists services lists them all."""

import ast
import re
import sys
import tomllib
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any

import opentelemetry.semconv
import pytest
import yaml

from chassis.telemetry import semconv
from shop_cli.local.workspace import discover

ROOT = Path(__file__).parents[2]
PROGRAMS = {program.name: program for program in discover(ROOT)}
SERVICES = sorted(name for name in PROGRAMS if (ROOT / "services" / name).exists())
GRPC_SERVICES = [name for name in SERVICES if PROGRAMS[name].protocol == "grpc"]
CHART = {
    name: entry or {}
    for name, entry in yaml.safe_load((ROOT / "charts/shop/values.yaml").read_text())["services"].items()
}
PACKAGE_FILES = ("__init__.py", "__main__.py", "py.typed")
GRPC_FILES = (
    "{package}/domain.py",
    "{package}/service.py",
    "tests/smoke.py",
    "tests/test_domain.py",
    "tests/test_service.py",
)

each_service = pytest.mark.parametrize("service", SERVICES)


def package_of(service: str) -> Path:
    return ROOT / "services" / service / "src" / f"{service.replace('-', '_')}_service"


def test_the_chart_installs_every_service_with_its_protocol_and_its_secrets() -> None:
    stated = {name: (entry.get("protocol", "grpc"), tuple(entry.get("secrets", ()))) for name, entry in CHART.items()}
    assert stated == {name: (program.protocol, program.secrets) for name, program in PROGRAMS.items()}


def test_skaffold_forwards_every_service_to_its_local_port_which_no_other_has() -> None:
    skaffold: dict[str, Any] = yaml.safe_load((ROOT / "skaffold.yaml").read_text())
    forwarded = {
        (forward["resourceName"].removeprefix("shop-"), forward["port"]): forward["localPort"]
        for forward in skaffold["portForward"]
    }
    # In a cluster all gRPC services have the same port; an HTTP service has its local one.
    public = {
        (service.name, 50051 if service.protocol == "grpc" else service.port): service.port
        for service in PROGRAMS.values()
    }
    internal = {(found.name, 50052): found.internal_port for found in PROGRAMS.values() if found.internal_port}
    assert public | internal == {key: forwarded.get(key) for key in public | internal}
    assert len({*public.values(), *internal.values()}) == len(public) + len(internal)


@each_service
def test_the_chart_lets_a_service_call_the_peers_in_its_settings(service: str) -> None:
    settings = import_module(f"{package_of(service).name}.__main__").Settings
    calls = {f"{name}_addr" for name in CHART[service].get("calls", ())}
    calls |= {f"{name}_internal_addr" for name in CHART[service].get("internalCalls", ())}
    addresses = {field.name for field in fields(settings) if field.name.endswith("_addr")}
    assert {name.replace("-", "_") for name in calls} == addresses


@pytest.mark.parametrize("service", GRPC_SERVICES)
def test_a_service_with_internal_services_has_a_port_for_them_everywhere(service: str) -> None:
    serves = "add_internal_servicer" in (package_of(service) / "__main__.py").read_text()
    assert [PROGRAMS[service].internal_port is not None, CHART[service].get("internal", False)] == [serves, serves]


def test_internal_services_are_registered_on_the_internal_port_only() -> None:
    sources = [path.read_text() for path in (ROOT / "services").glob("*/src/*_service/**/*.py")]
    registered = [call for text in sources for call in re.findall(r"add_servicer\(\s*(\w+)", text)]
    internal = {f"{proto.stem}_pb2_grpc" for proto in (ROOT / "protos/shop_internal").glob("*.proto")}
    assert set(registered) & internal == set()


@each_service
def test_a_service_has_the_common_files_and_one_name_everywhere(service: str) -> None:
    folder, package = ROOT / "services" / service, package_of(service)
    expected = [*(package / name for name in PACKAGE_FILES), folder / "README.md"]
    if service in GRPC_SERVICES:
        expected += [folder / name.format(package=package) for name in GRPC_FILES]
        expected.append(ROOT / f"protos/shop/{service.replace('-', '_')}.proto")
    assert [str(path) for path in expected if not path.exists()] == []
    assert tomllib.loads((folder / "pyproject.toml").read_text())["project"]["name"] == f"{service}-service"
    assert f'run("{service}"' in (package / "__main__.py").read_text()


def test_smoke_calls_run_without_the_code_of_their_services() -> None:
    modules = (*(ROOT / "services").glob("*/tests/smoke.py"), ROOT / "tests/kit/src/shop_smoke.py")
    imports = (re.findall(r"^(?:from|import) (\w+)", module.read_text(), re.MULTILINE) for module in modules)
    assert set().union(*imports) - sys.stdlib_module_names <= {"google", "grpc", "shop", "shop_smoke"}


@each_service
def test_only_main_reads_the_environment(service: str) -> None:
    reading = re.compile(r"\bos\.environ\b|from chassis\.settings import (?:\([^)]*|.*)\bload\b")
    readers = {module.name for module in package_of(service).rglob("*.py") if reading.search(module.read_text())}
    assert readers <= {"__main__.py"}


def test_the_lock_names_no_package_index_but_the_public_one() -> None:
    hosts = set(re.findall(r"https?://([^/\"]+)", (ROOT / "uv.lock").read_text()))
    assert hosts == {"pypi.org", "files.pythonhosted.org"}


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
            kind = metric.kind.replace("_", "")
            assert f"Instrument: {kind}\nUnit: {metric.unit}\n" in current[metric.name], metric.name


def test_metrics_have_listed_attributes_only() -> None:
    assert {attribute for metric in semconv.METRICS for attribute in metric.attributes} <= set(semconv.ATTRIBUTES)
