"""Runs a whole shop with its control room: what `shop up` does."""

import os
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path

from chassis.background import in_background
from chassis.errors import FailedPrecondition
from shop_cli.control_room.app import served
from shop_cli.control_room.reconciliation import open_reconciler
from shop_cli.control_room.room import ControlRoom, Panel
from shop_cli.local.child_process import ChildProcess
from shop_cli.local.identities import Identities
from shop_cli.local.otlp_receiver import exporting_to, receiver
from shop_cli.local.ports import HOST, require_free, reserved
from shop_cli.local.processes import Shop
from shop_cli.local.run_file import DATA, Run, locked, published
from shop_cli.local.supervision import supervise
from shop_cli.local.telemetry_store import TelemetryStore
from shop_cli.local.workspace import Program, default_ports, discover, internal_name

PORT = 8090
_NAME = "control-room"
_EXPORTER = "OTEL_EXPORTER_OTLP_"
_ENDPOINT = f"{_EXPORTER}ENDPOINT"
# A trace is complete about this long after its last span; a shorter delay costs idle processes more.
_EXPORT_MILLISECONDS = 1_000

Variables = Mapping[str, Mapping[str, str]]
"""Environment variables by name of the program."""


class StoreMissing(FailedPrecondition):
    """A package that contains a database server is not installed."""


@dataclass(frozen=True)
class Options:
    """How a shop runs.

    Attributes:
        port_offset: added to every default port.
        any_ports: whether all ports are free ones instead of default ones.
        postgres: whether everything is stored in PostgreSQL and Valkey instead of SQLite files and memory.
        tls: whether services call each other by mutual TLS.
        lab: whether services serve failpoints.
    """

    port_offset: int = 0
    any_ports: bool = False
    postgres: bool = False
    tls: bool = False
    lab: bool = False


@asynccontextmanager
async def running(folder: Path, options: Options) -> AsyncIterator[ControlRoom]:
    """Start the shop and its control room, restart services that end, and stop everything on leaving.

    The folder is for data, logs and secrets. Raise ShopRunning, FolderNotWritable, PortInUse or StoreMissing.
    """
    programs, telemetry = discover(), TelemetryStore()
    async with AsyncExitStack() as stack:
        stack.enter_context(locked(folder))
        ports = _ports(stack, programs, options)
        names = [program.name for program in programs]
        identities = Identities.issue(folder / DATA / "tls", names, lab=options.lab) if options.tls else None
        run = _describe(folder, ports, identities, lab=options.lab)
        stores, databases = await _start_stores(stack, folder) if options.postgres else ((), {})
        environment = await _environment(stack, telemetry)
        links, failing = _links(run), {"LAB": "1"} if options.lab else {}
        overrides = {name: {**databases.get(name, {}), **links.get(name, {}), **failing} for name in names}
        shop = Shop(programs, folder, ports, environment, overrides, identities=identities)
        await stack.enter_async_context(shop)
        reconciler = await stack.enter_async_context(open_reconciler(shop))
        room = ControlRoom(run, shop, stores, telemetry, reconciler)
        await stack.enter_async_context(in_background(partial(supervise, room.processes), room.monitor.run))
        room.telemetry_elsewhere = os.environ.get(_ENDPOINT)
        room.panel = _find_panel(room) if options.lab else None
        stack.push_async_callback(room.close)
        await stack.enter_async_context(served(room))
        stack.enter_context(published(run))
        yield room


def _ports(stack: AsyncExitStack, programs: Sequence[Program], options: Options) -> Mapping[str, int]:
    """Return the ports by name. Raise PortInUse.

    In a laboratory each gRPC service has an internal port: 11051 beside 50051, as those have that always serve one.
    """
    ports = {**default_ports(programs), _NAME: PORT}
    for program in programs if options.lab else ():
        if program.protocol == "grpc":
            ports[internal_name(program.name)] = program.port - 39_000
    if options.any_ports:
        return dict(zip(ports, stack.enter_context(reserved(len(ports))), strict=True))
    raised = {name: port + options.port_offset for name, port in ports.items()}
    for name, port in raised.items():
        require_free(port, name)
    return raised


def _describe(folder: Path, ports: Mapping[str, int], identities: Identities | None, *, lab: bool) -> Run:
    addresses = {name: f"{HOST}:{port}" for name, port in ports.items() if name != _NAME}
    url, token = f"http://localhost:{ports[_NAME]}", secrets.token_urlsafe(24)
    tls_folder = str(identities.operator.folder) if identities else ""
    return Run(os.getpid(), str(folder), addresses, url, token, tls_folder, lab)


async def _start_stores(stack: AsyncExitStack, folder: Path) -> tuple[Sequence[ChildProcess], Variables]:
    try:
        from shop_cli.local.data_stores import data_stores  # noqa: PLC0415 - needs packages that are optional
    except ImportError as error:
        raise StoreMissing(f"{error.name} is not installed: make setup does so in the repository") from error
    return await stack.enter_async_context(data_stores(folder))


async def _environment(stack: AsyncExitStack, telemetry: TelemetryStore) -> Mapping[str, str]:
    """Return the environment of all services. They export to this process, unless the environment names an endpoint."""
    # The addresses never change here, and idle services would renew the connections that watch their health.
    defaults = {"MAX_CONNECTION_AGE_SECONDS": "3600"}
    if not os.environ.get(_ENDPOINT):
        (port,) = stack.enter_context(reserved(1))
        await stack.enter_async_context(receiver(port, telemetry))
        defaults |= exporting_to(port, delay_milliseconds=_EXPORT_MILLISECONDS)
        defaults["OTEL_METRIC_EXPORT_INTERVAL"] = "60000"  # nothing reads them: figures are derived from spans
    ignored = without_effect()
    return {**defaults, **{name: value for name, value in os.environ.items() if value and name not in ignored}}


def without_effect() -> list[str]:
    """Return the variables of an exporter that are set although none says where it exports to."""
    found = [name for name, value in os.environ.items() if value and name.startswith(_EXPORTER)]
    return [] if _ENDPOINT in found else found


def _links(run: Run) -> Variables:
    """Return the variables that link storefront, confirmations and control room, unless the environment sets them."""
    host = run.control_room.removeprefix("http://localhost")
    links = {
        "storefront": ("TRACES_URL", f"http://shop:{run.token}@{HOST}{host}"),
        "email": ("STOREFRONT_URL", run.url("storefront")),
    }
    return {
        name: {variable: value}
        for name, (variable, value) in links.items()
        if value is not None and variable not in os.environ
    }


def _find_panel(room: ControlRoom) -> Panel | None:
    """Return the panel of the laboratory, an entry point of `shop-lab`, if that is installed."""
    for entry_point in metadata.entry_points(group="shop.control_room"):
        panel: Panel = entry_point.load()(room, Path(room.run.folder))
        return panel
    return None
