"""Check the import rules with import-linter: `python tests/repository/import_contracts.py`.

The contracts are derived from the folders, so they cover a new service without naming it. A package with more structure
than the common shape states its layers, outermost first, in its pyproject.toml:

    [tool.shop]
    layers = ["__main__", "service", "placing : recovery", "ports", "domain"]

As in import-linter, `a : b` are siblings that may import each other, and `a | b` siblings that may not.

A package may also state its core: modules that import neither other modules of the package nor wire or databases.

    core = ["placing", "recovery", "ports", "domain"]
"""

import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from importlinter.cli import lint_imports

ROOT = Path(__file__).parents[2]
TEST_PACKAGES = ["shop_kit", "shop_lab"]
# What no domain may import, directly or indirectly: wire formats, databases and frameworks.
OUTER = [
    *(f"chassis.{name}" for name in ("failpoints", "http", "process", "rpc", "settings", "sql", "telemetry")),
    "google",
    "grpc",
    "httpx2",
    "opentelemetry",
    "psycopg",
    "redis",
    "shop",
    "shop_internal",
    "sqlalchemy",
    "sqlmodel",
    "starlette",
    "structlog",
]

# What only the images of checkout, the employee API and the load generator have.
OF_ONE_IMAGE = ["aiosqlite", "cryptography", "gevent", "greenlet", "locust", "passlib", "pydantic", "sqlmodel"]

# What no core imports. Imports by the chassis do not count, but its wire mappers do.
WIRE_AND_DATABASES = ["chassis.rpc.wire", "google", "grpc", "psycopg", "shop", "shop_internal", "sqlalchemy", "sqlite3"]

Contract = dict[str, Any]


def projects() -> Iterator[Path]:
    """Yield the folders of all packages but the generated one."""
    for file in (
        *ROOT.glob("services/*/pyproject.toml"),
        *ROOT.glob("tests/*/pyproject.toml"),
        ROOT / "employee-api/pyproject.toml",
    ):
        yield file.parent


def package_of(project: Path) -> Path:
    """Return the folder of a project's import package."""
    return next((project / "src").glob("*/__init__.py")).parent


def modules_of(package: Path) -> set[str]:
    """Return the names of a package's modules and subpackages, without those of subpackages."""
    files = {path.stem for path in package.glob("*.py")} - {"__init__"}
    return files | {path.parent.name for path in package.glob("*/__init__.py")}


def stated(project: Path, name: str) -> list[str]:
    """A list under `[tool.shop]` in a project's pyproject.toml; empty unless it is stated."""
    settings = tomllib.loads((project / "pyproject.toml").read_text())["tool"].get("shop", {})
    found: list[str] = settings.get(name, [])
    return found


def layers_of(project: Path) -> list[str]:
    """The layers that a project states, or those of the common shape of a service."""
    if layers := stated(project, "layers"):
        return layers
    between = sorted(modules_of(package_of(project)) - {"__main__", "service", "domain"})
    return ["__main__", "service", *([" : ".join(between)] if between else []), "domain"]


def layers(project: Path) -> Contract:
    """Require that a package imports down its layers only, and that every module belongs to a layer."""
    package = package_of(project)
    return {
        "name": f"{package.name}: imports point inward",
        "type": "layers",
        "layers": layers_of(project),
        "containers": [package.name],
        "exhaustive": True,
    }


def core(project: Path) -> Contract:
    """A package's core imports no adapter of the package, no wire and no database, however indirectly."""
    package, inner = package_of(project), set(stated(project, "core"))
    adapters = [f"{package.name}.{module}" for module in sorted(modules_of(package) - inner)]
    sources = [f"{package.name}.{module}" for module in sorted(inner)]
    name = f"{package.name}: the core imports no adapter, no wire and no database"
    return {**forbidden(name, sources, adapters + WIRE_AND_DATABASES), "ignore_imports": ["chassis.** -> **"]}


def forbidden(name: str, sources: Sequence[str], targets: Sequence[str]) -> Contract:
    """Forbid that a source imports a target, directly or indirectly."""
    return {"name": name, "type": "forbidden", "source_modules": sources, "forbidden_modules": targets}


def contracts() -> list[Contract]:
    """Return all contracts of the workspace."""
    packages = {package_of(project).name for project in projects()}
    services = sorted(name for name in packages if name.endswith("_service"))
    shipped = sorted(packages - {*TEST_PACKAGES})
    # tests/repository/test_layout.py requires a domain of every gRPC service.
    domains = [f"{package.name}.domain" for package in map(package_of, projects()) if (package / "domain.py").exists()]
    return [
        *(layers(project) for project in sorted(projects()) if package_of(project).name != "shop_kit"),
        *(core(project) for project in sorted(projects()) if stated(project, "core")),
        {"name": "services do not import each other", "type": "independence", "modules": services},
        forbidden("the chassis imports no service", ["chassis"], [name for name in shipped if name != "chassis"]),
        forbidden("domains import no wire format, database or framework", domains, OUTER),
        forbidden("services import no package that their images lack", services, OF_ONE_IMAGE),
        forbidden("the load generator imports no gRPC, which gevent does not support", ["load_generator"], ["grpc"]),
        forbidden(
            "only the load generator imports gevent", sorted(packages - {"load_generator"}), ["gevent", "locust"]
        ),
        forbidden("shipped code imports no test code", shipped, [*TEST_PACKAGES, "pytest", "hypothesis"]),
        # ruff's banned-api holds it for tests, which are no packages.
        forbidden("only the laboratory imports the laboratory", sorted(packages - {"shop_lab"}), ["shop_lab"]),
    ]


def to_ini(found: Iterable[Contract]) -> str:
    """Return the contracts as an import-linter configuration file."""
    roots = sorted(package_of(project).name for project in projects())
    lines = [
        "[importlinter]",
        "root_packages =",
        *(f"    {root}" for root in roots),
        "include_external_packages = True",
    ]
    for number, contract in enumerate(found):
        lines.append(f"[importlinter:contract:{number}]")
        for key, value in contract.items():
            lines += (
                [f"{key} =", *(f"    {each}" for each in value)] if isinstance(value, list) else [f"{key} = {value}"]
            )
    return "\n".join(lines) + "\n"


def main() -> int:
    """Check all contracts; return import-linter's exit status."""
    with tempfile.NamedTemporaryFile("w", suffix=".ini", encoding="utf-8") as file:
        file.write(to_ini(contracts()))
        file.flush()
        return lint_imports(config_filename=file.name, cache_dir=str(ROOT / ".import_linter_cache"))


if __name__ == "__main__":
    sys.exit(main())
