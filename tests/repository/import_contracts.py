"""Check the import rules with import-linter: `python tests/repository/import_contracts.py`.

The contracts are derived from the folders, so they cover a new service without naming it. A package with more structure
than the common shape states its layers, outermost first, in its pyproject.toml:

    [tool.shop]
    layers = ["__main__", "service", "placing : recovery", "ports", "domain"]

As in import-linter, `a : b` are siblings that may import each other, and `a | b` siblings that may not.

A package may also state its core: modules that import neither other modules of the package nor wire or databases.

    core = ["placing", "recovery", "ports", "domain"]

What modules named in `core-exceptions` import does not count.
"""

import sys
import tempfile
import tomllib
from collections.abc import Sequence
from configparser import ConfigParser
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


def projects() -> list[Path]:
    """Return the folders of all packages but the generated one."""
    patterns = ("services/*/pyproject.toml", "tests/*/pyproject.toml", "employee-api/pyproject.toml")
    return sorted(file.parent for pattern in patterns for file in ROOT.glob(pattern))


def names() -> list[str]:
    """Return the import names of all packages."""
    return sorted(package_of(project).name for project in projects())


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


def layers(project: Path) -> Contract:
    """Require that a package imports down its layers only: those that it states, or those of a service's common shape.

    Every module must belong to a layer.
    """
    package = package_of(project)
    between = sorted(modules_of(package) - {"__main__", "service", "domain"})
    common = ["__main__", "service", *([" : ".join(between)] if between else []), "domain"]
    return {
        "name": f"{package.name}: imports point inward",
        "type": "layers",
        "layers": stated(project, "layers") or common,
        "containers": [package.name],
        "exhaustive": True,
    }


def core(project: Path) -> Contract:
    """A package's core imports no adapter of the package, no wire and no database, however indirectly."""
    package, inner = package_of(project), set(stated(project, "core"))
    adapters = [f"{package.name}.{module}" for module in sorted(modules_of(package) - inner)]
    sources = [f"{package.name}.{module}" for module in sorted(inner)]
    name = f"{package.name}: the core imports no adapter, no wire and no database"
    ignored = ["chassis.** -> **", *(f"{package.name}.{module} -> **" for module in stated(project, "core-exceptions"))]
    return {**forbidden(name, sources, adapters + WIRE_AND_DATABASES), "ignore_imports": ignored}


def forbidden(name: str, sources: Sequence[str], targets: Sequence[str]) -> Contract:
    """Forbid that a source imports a target, directly or indirectly."""
    return {"name": name, "type": "forbidden", "source_modules": sources, "forbidden_modules": targets}


def all_but(package: str) -> list[str]:
    return [name for name in names() if name != package]


def contracts() -> list[Contract]:
    """Return all contracts of the workspace."""
    services = [name for name in names() if name.endswith("_service")]
    shipped = [name for name in names() if name not in TEST_PACKAGES]
    # tests/repository/test_layout.py requires a domain of every gRPC service.
    domains = [f"{package.name}.domain" for package in map(package_of, projects()) if (package / "domain.py").exists()]
    return [
        *(layers(project) for project in projects() if package_of(project).name != "shop_kit"),
        *(core(project) for project in projects() if stated(project, "core")),
        {"name": "services do not import each other", "type": "independence", "modules": services},
        forbidden("the chassis imports no service", ["chassis"], sorted({*shipped} - {"chassis"})),
        forbidden("domains import no wire format, database or framework", domains, OUTER),
        forbidden("services import no package that their images lack", services, OF_ONE_IMAGE),
        forbidden("the load generator imports no gRPC, which gevent does not support", ["load_generator"], ["grpc"]),
        forbidden("only the load generator imports gevent", all_but("load_generator"), ["gevent", "locust"]),
        forbidden("shipped code imports no test code", shipped, [*TEST_PACKAGES, "pytest", "hypothesis"]),
        # ruff's banned-api holds it for tests, which are no packages.
        forbidden("only the laboratory imports the laboratory", all_but("shop_lab"), ["shop_lab"]),
    ]


def main() -> int:
    """Check all contracts; return import-linter's exit status."""
    config = ConfigParser()
    config["importlinter"] = {"root_packages": _lines(names()), "include_external_packages": "True"}
    for number, contract in enumerate(contracts()):
        config[f"importlinter:contract:{number}"] = {key: _lines(value) for key, value in contract.items()}
    with tempfile.NamedTemporaryFile("w", suffix=".ini", encoding="utf-8") as file:
        config.write(file)
        file.flush()
        return lint_imports(config_filename=file.name, cache_dir=str(ROOT / ".import_linter_cache"))


def _lines(value: Any) -> str:
    return "\n".join(value) if isinstance(value, list) else str(value)


if __name__ == "__main__":
    sys.exit(main())
