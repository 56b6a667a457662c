"""All services have the same shape, and everything that lists services lists them all."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from shop_cli.local.workspace import discover

ROOT = Path(__file__).parents[2]
PROGRAMS = {program.name: program for program in discover(ROOT)}
SERVICES = sorted(name for name in PROGRAMS if (ROOT / "services" / name).exists())
GRPC_SERVICES = [name for name in SERVICES if PROGRAMS[name].protocol == "grpc"]
PACKAGE_FILES = ("__init__.py", "__main__.py", "py.typed")
GRPC_PACKAGE_FILES = ("domain.py", "service.py")
GRPC_TEST_FILES = ("smoke.py", "test_domain.py", "test_service.py")

each_service = pytest.mark.parametrize("service", SERVICES)
each_grpc_service = pytest.mark.parametrize("service", GRPC_SERVICES)


def package_of(service: str) -> Path:
    return ROOT / "services" / service / "src" / f"{service.replace('-', '_')}_service"


def project_of(service: str) -> dict[str, Any]:
    folder = ROOT / "services" / service
    return tomllib.loads((folder / "pyproject.toml").read_text())


def imports_of(module: Path) -> Iterator[str]:
    """Yield the full names of the modules that a file imports; for `from a import b` both `a` and `a.b`."""
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def chart_values() -> dict[str, Any]:
    return cast("dict[str, Any]", yaml.safe_load((ROOT / "charts/shop/values.yaml").read_text()))


def skaffold() -> dict[str, Any]:
    return cast("dict[str, Any]", next(yaml.safe_load_all((ROOT / "skaffold.yaml").read_text())))


def test_the_chart_installs_every_service() -> None:
    assert sorted(chart_values()["services"]) == sorted(PROGRAMS)


def test_skaffold_builds_the_image_of_every_service() -> None:
    built = [artifact["image"].rpartition("/")[2] for artifact in skaffold()["build"]["artifacts"]]
    assert set(built) >= set(PROGRAMS)


def test_skaffold_forwards_every_service_to_its_local_port() -> None:
    forwarded = {
        (forward["resourceName"].removeprefix("shop-"), forward["port"]): forward["localPort"]
        for forward in skaffold()["portForward"]
    }
    # In a cluster all gRPC services have the same port; an HTTP service has its local one.
    public = {
        (service.name, 50051 if service.protocol == "grpc" else service.port): service.port
        for service in PROGRAMS.values()
    }
    internal = {(found.name, 50052): found.internal_port for found in PROGRAMS.values() if found.internal_port}
    assert public | internal == {key: forwarded.get(key) for key in public | internal}


def test_no_two_services_share_a_local_port() -> None:
    ports = [port for found in PROGRAMS.values() for port in (found.port, found.internal_port) if port is not None]
    assert len(set(ports)) == len(ports)


def test_the_chart_generates_the_secrets_of_every_service() -> None:
    generated = {name: tuple(service.get("secrets", ())) for name, service in chart_values()["services"].items()}
    assert generated == {name: program.secrets for name, program in PROGRAMS.items()}


def test_the_chart_and_the_package_of_a_service_state_the_same_protocol() -> None:
    stated = {name: (service or {}).get("protocol", "grpc") for name, service in chart_values()["services"].items()}
    assert stated == {name: program.protocol for name, program in PROGRAMS.items()}


@each_service
def test_the_chart_lets_a_service_call_the_peers_in_its_settings(service: str) -> None:
    settings = import_module(f"{package_of(service).name}.__main__").Settings
    entry = chart_values()["services"][service] or {}
    calls = {f"{name}_addr" for name in entry.get("calls", ())}
    calls |= {f"{name}_internal_addr" for name in entry.get("internalCalls", ())}
    addresses = {field.name for field in fields(settings) if field.name.endswith("_addr")}
    assert {name.replace("-", "_") for name in calls} == addresses


@each_grpc_service
def test_a_service_with_internal_services_has_a_port_for_them_everywhere(service: str) -> None:
    serves = "add_internal_servicer" in (package_of(service) / "__main__.py").read_text()
    has_local_port = "internal-port" in project_of(service)["tool"]["shop"]
    has_port_in_the_chart = (chart_values()["services"][service] or {}).get("internal", False)
    assert [has_local_port, has_port_in_the_chart] == [serves, serves]


def test_internal_services_are_registered_on_the_internal_port_only() -> None:
    sources = [path.read_text() for path in (ROOT / "services").glob("*/src/*_service/**/*.py")]
    registered = [call for text in sources for call in re.findall(r"add_servicer\(\s*(\w+)", text)]
    internal = {f"{proto.stem}_pb2_grpc" for proto in (ROOT / "protos/shop_internal").glob("*.proto")}
    assert set(registered) & internal == set()


@each_service
def test_a_service_has_the_common_files(service: str) -> None:
    package = package_of(service)
    tests = package.parents[1] / "tests"
    expected = [*(package / name for name in PACKAGE_FILES), ROOT / "services" / service / "README.md"]
    if service in GRPC_SERVICES:
        expected += [*(package / name for name in GRPC_PACKAGE_FILES), *(tests / name for name in GRPC_TEST_FILES)]
        expected.append(ROOT / f"protos/shop/{service.replace('-', '_')}.proto")
    assert [str(path.relative_to(ROOT)) for path in expected if not path.exists()] == []


@each_service
def test_a_service_has_one_name_everywhere(service: str) -> None:
    assert project_of(service)["project"]["name"] == f"{service}-service"
    assert f'run("{service}"' in (package_of(service) / "__main__.py").read_text()


@each_grpc_service
def test_a_smoke_call_runs_without_the_code_of_its_service(service: str) -> None:
    modules = (ROOT / "services" / service / "tests/smoke.py", ROOT / "tests/kit/src/shop_smoke.py")
    imported = {name.partition(".")[0] for module in modules for name in imports_of(module)}
    assert imported - sys.stdlib_module_names <= {"google", "grpc", "shop", "shop_smoke"}


@each_service
def test_only_main_reads_the_environment(service: str) -> None:
    readers = {
        module.name
        for module in package_of(service).rglob("*.py")
        if "chassis.settings.load" in imports_of(module) or "os.environ" in module.read_text()
    }
    assert readers <= {"__main__.py"}


def test_the_repository_has_no_other_top_level_folder() -> None:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    folders = {path.partition("/")[0] for path in listed if "/" in path}
    assert folders <= {"charts", "services", "employee-api", "protos", "tests", ".github", ".ci"}


def test_the_lock_names_no_package_index_but_the_public_one() -> None:
    hosts = set(re.findall(r"https?://([^/\"]+)", (ROOT / "uv.lock").read_text()))
    assert hosts == {"pypi.org", "files.pythonhosted.org"}
