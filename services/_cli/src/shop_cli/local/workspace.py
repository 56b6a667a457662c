"""Finds the workspace's programs: all packages with a `[tool.shop] port` in their pyproject.toml.

`[tool.shop] protocol` is the protocol served on that port: `grpc` (the default) or `http`.
"""

import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from chassis.errors import FailedPrecondition, NotFound

OWN_COMMAND = Path(sys.executable).with_name("shop")
"""The path of the `shop` command, which works in any folder."""

MAX_PORT_OFFSET = 15_400  # with a larger offset, a default port would exceed 65,535
PORT_STEP = 100
"""Two shops don't share any ports if their port offsets differ by a multiple of this number."""


class UnknownService(NotFound):
    """No program has this name."""


@dataclass(frozen=True)
class Program:
    """A service that can be started.

    Attributes:
        name: the name of the program's folder, such as `product-catalog`.
        port, internal_port: the default local ports for public and internal services.
        secrets: the names of environment variables that must contain random secrets.
        migrations: the folder with the program's database migrations; None if it has no database.
    """

    name: str
    module: str
    port: int
    protocol: Literal["grpc", "http"]
    internal_port: int | None = None
    secrets: tuple[str, ...] = ()
    migrations: Path | None = None
    python: str = sys.executable


def root() -> Path:
    """Return the root of the workspace that contains the current folder or, failing that, this package."""
    for start in (Path.cwd(), Path(__file__).parent):
        for folder in (start, *start.parents):
            if (folder / "services" / "_chassis" / "pyproject.toml").is_file():
                return folder
    raise FailedPrecondition("run this command inside the shop's repository", reason="WORKSPACE_NOT_FOUND")


def discover(folder: Path | None = None) -> list[Program]:
    """Return the programs of a workspace (by default `root()`), sorted by protocol (gRPC first), then port."""
    folder = folder or root()
    paths = [*folder.glob("services/*/pyproject.toml"), *folder.glob("*/pyproject.toml")]
    programs = [program for path in paths if (program := _read(path))]
    return sorted(programs, key=lambda program: (program.protocol, program.port))


def discover_services(folder: Path | None = None) -> list[Program]:
    return [program for program in discover(folder) if program.protocol == "grpc"]


def default_ports(programs: Sequence[Program]) -> dict[str, int]:
    """Return the default ports: public ports by program name, and internal ports by `internal_name`."""
    ports = {program.name: program.port for program in programs}
    return ports | {internal_name(program.name): program.internal_port for program in programs if program.internal_port}


def internal_name(name: str) -> str:
    """Return the name of a program's port for internal services, such as `checkout-internal`."""
    return f"{name}-internal"


def address_variable(name: str) -> str:
    """Return the name of an address variable: CART_ADDR for `cart`, or CART_INTERNAL_ADDR for `cart-internal`."""
    return f"{name.replace('-', '_').upper()}_ADDR"


def find(programs: Sequence[Program], name: str) -> Program:
    """Return the program with this name. Raise UnknownService if there is none."""
    for program in programs:
        if program.name == name:
            return program
    raise UnknownService(f"unknown service {name!r}: expected one of {', '.join(program.name for program in programs)}")


def _read(path: Path) -> Program | None:
    tool = tomllib.loads(path.read_text(encoding="utf-8")).get("tool", {})
    shop = tool.get("shop", {})
    if "port" not in shop:
        return None
    protocol = shop.get("protocol", "grpc")
    if protocol not in ("grpc", "http"):
        message = f"{path}: protocol must be grpc or http, not {protocol!r}"
        raise FailedPrecondition(message, reason="INVALID_PROGRAM")
    (package,) = tool["hatch"]["build"]["targets"]["wheel"]["packages"]
    return Program(
        name=path.parent.name,
        module=Path(package).name,
        port=shop["port"],
        protocol=protocol,
        internal_port=shop.get("internal-port"),
        secrets=tuple(shop.get("secrets", ())),
        migrations=next(path.parent.glob(f"{package}/**/migrations")) if shop.get("database") else None,
    )
