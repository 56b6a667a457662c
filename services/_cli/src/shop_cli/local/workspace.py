"""What this workspace can run: every package with a `[tool.shop] port` in its pyproject.toml."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from chassis.errors import FailedPrecondition, NotFound


class WorkspaceNotFound(FailedPrecondition):
    """The command runs outside of the shop's workspace."""


class UnknownService(NotFound):
    """No package of the workspace has this name."""


@dataclass(frozen=True)
class Program:
    """A service that can be started.

    Attributes:
        name: its one name, such as `product-catalog`.
        module: what `python -m` runs, such as `product_catalog_service`.
        port: its usual port on a developer's machine.
        protocol: how its health is asked for.
    """

    name: str
    module: str
    port: int
    protocol: Literal["grpc", "http"]

    @property
    def address_variable(self) -> str:
        """The environment variable that tells its peers where it is."""
        return f"{self.name.replace('-', '_').upper()}_ADDR"


def root() -> Path:
    """The workspace's folder: the current one or one above it, else the one that this package is installed from."""
    for start in (Path.cwd(), Path(__file__).parent):
        for folder in (start, *start.parents):
            if (folder / "services" / "_chassis" / "pyproject.toml").is_file():
                return folder
    raise WorkspaceNotFound("run this inside the shop's repository")


def discover(folder: Path | None = None) -> list[Program]:
    """All programs of a workspace (this one unless given), ordered by port, those that speak gRPC first."""
    folder = folder or root()
    programs = [
        program
        for pattern, protocol in (("services/*/pyproject.toml", "grpc"), ("*/pyproject.toml", "http"))
        for path in folder.glob(pattern)
        if (program := _read(path, "grpc" if protocol == "grpc" else "http"))
    ]
    return sorted(programs, key=lambda program: (program.protocol, program.port))


def discover_services(folder: Path | None = None) -> list[Program]:
    """The gRPC services of a workspace."""
    return [program for program in discover(folder) if program.protocol == "grpc"]


def find(programs: Sequence[Program], name: str) -> Program:
    """The program of that name; raises UnknownService."""
    for program in programs:
        if program.name == name:
            return program
    raise UnknownService(f"there is no service {name!r}: there are {', '.join(each.name for each in programs)}")


def _read(path: Path, protocol: Literal["grpc", "http"]) -> Program | None:
    tool = tomllib.loads(path.read_text(encoding="utf-8")).get("tool", {})
    if "port" not in tool.get("shop", {}):
        return None
    (package,) = tool["hatch"]["build"]["targets"]["wheel"]["packages"]
    return Program(path.parent.name, Path(package).name, tool["shop"]["port"], protocol)
