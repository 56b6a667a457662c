"""Runs a whole shop with its control room: what `shop up` does."""

import os
import secrets
import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from importlib import metadata
from pathlib import Path

from chassis.background import in_background
from chassis.errors import FailedPrecondition
from shop_cli.control_room.app import served
from shop_cli.control_room.customers import Customers
from shop_cli.control_room.reconciliation import open_reconciler
from shop_cli.control_room.room import ControlRoom, Panel
from shop_cli.local.child_process import ChildProcess
from shop_cli.local.identities import Identities
from shop_cli.local.otlp_receiver import Sink, exporting_to, receiver
from shop_cli.local.ports import HOST, require_free, reserved
from shop_cli.local.processes import Shop
from shop_cli.local.recording import FOLDER, Recording
from shop_cli.local.run_file import DATA, Run, locked, published
from shop_cli.local.supervision import Monitor, supervise
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


@asynccontextmanager
async def running(
    folder: Path, *, port_offset: int, any_ports: bool, postgres: bool, tls: bool, lab: bool
) -> AsyncIterator[ControlRoom]:
    """Start the shop and its control room, restart services that end, and stop everything on leaving.

    The folder is for data, logs and secrets. With `any_ports` the ports are free ones, not the default ones plus
    `port_offset`. With `postgres` everything is stored in PostgreSQL and Valkey instead of SQLite files and memory;
    with `tls` services call each other by mutual TLS. With `lab` they serve failpoints, and prefer the modules in
    `.shop/modules/<service>/`.
    Raise ShopRunning, FolderNotWritable, PortInUse or StoreMissing.
    """
    programs, telemetry = discover(), TelemetryStore()
    async with AsyncExitStack() as stack:
        stack.enter_context(locked(folder))
        ports = {**default_ports(programs), **(_lab_ports(programs) if lab else {}), _NAME: PORT}
        free = stack.enter_context(reserved(len(ports))) if any_ports else ()
        ports = dict(zip(ports, free or (port + port_offset for port in ports.values()), strict=True))
        for name, port in ports.items():
            require_free(port, name)
        storefront, employee_api = (
            f"http://localhost:{ports[name]}" if name in ports else None for name in ("storefront", "employee-api")
        )
        names = [program.name for program in programs]
        identities = Identities.issue(folder / DATA / "tls", names, lab=lab) if tls else None
        run = _describe(ports, folder, identities, lab=lab)
        stores, databases = await _start_stores(stack, folder) if postgres else ((), {})
        sink = Recording(folder / DATA / FOLDER, telemetry) if lab else telemetry
        environment = await _environment(stack, sink, lab=lab)
        links = _links(run, storefront)
        overrides = {name: {**databases.get(name, {}), **links.get(name, {})} for name in names}
        for left in ("modules", FOLDER):  # by a shop that was killed
            shutil.rmtree(folder / DATA / left, ignore_errors=True)
        for name in names if lab else ():
            modules = (str(folder / DATA / "modules" / name), environment.get("PYTHONPATH"))
            overrides[name] |= {"LAB": "1", "PYTHONPATH": os.pathsep.join(filter(None, modules))}
        shop = await stack.enter_async_context(
            Shop(programs, folder, ports, environment, overrides, identities=identities)
        )
        monitor = Monitor([*shop, *stores])
        await stack.enter_async_context(in_background(partial(supervise, [*shop, *stores]), monitor.run))
        reconciler = await stack.enter_async_context(open_reconciler(shop))
        customers = Customers(storefront, folder / ".shop" / "log" / "customers.log")
        url, elsewhere = f"{run.control_room}/?token={run.token}", os.environ.get(_ENDPOINT)
        room = ControlRoom(
            shop, monitor, telemetry, reconciler, customers, stores, url, storefront, employee_api, elsewhere
        )
        room.panel = _find_panel(room, folder) if lab else None
        stack.push_async_callback(room.close)
        await stack.enter_async_context(served(room, ports[_NAME], run.token))
        stack.enter_context(published(run))
        yield room


def _find_panel(room: ControlRoom, folder: Path) -> Panel | None:
    """Return the panel of the laboratory, an entry point of `shop-lab`, if that is installed."""
    for entry_point in metadata.entry_points(group="shop.control_room"):
        panel: Panel = entry_point.load()(room, folder)
        return panel
    return None


def _lab_ports(programs: Sequence[Program]) -> Mapping[str, int]:
    """Return an internal port for each gRPC service: 11051 beside 50051, as those have that always serve one."""
    return {internal_name(program.name): program.port - 39_000 for program in programs if program.protocol == "grpc"}


def _describe(ports: Mapping[str, int], folder: Path, identities: Identities | None, *, lab: bool) -> Run:
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


async def _environment(stack: AsyncExitStack, sink: Sink, *, lab: bool) -> Mapping[str, str]:
    """Return the environment of all services. They export to `sink`, unless the environment names an endpoint."""
    # The addresses never change here, and idle services would renew the connections that watch their health.
    defaults = {"MAX_CONNECTION_AGE_SECONDS": "3600"}
    if not os.environ.get(_ENDPOINT):
        (port,) = stack.enter_context(reserved(1))
        await stack.enter_async_context(receiver(port, sink))
        defaults |= exporting_to(port, delay_milliseconds=_EXPORT_MILLISECONDS)
        # Figures are derived from spans; only recordings have metrics.
        defaults["OTEL_METRIC_EXPORT_INTERVAL"] = "1000" if lab else "60000"
    ignored = without_effect()
    return {**defaults, **{name: value for name, value in os.environ.items() if value and name not in ignored}}


def without_effect() -> list[str]:
    """Return the variables of an exporter that are set although none says where it exports to."""
    found = [name for name, value in os.environ.items() if value and name.startswith(_EXPORTER)]
    return [] if _ENDPOINT in found else found


def _links(run: Run, storefront: str | None) -> Variables:
    """Return the variables that link storefront, confirmations and control room, unless the environment sets them."""
    host = run.control_room.removeprefix("http://localhost")
    links = {
        "storefront": ("TRACES_URL", f"http://shop:{run.token}@{HOST}{host}"),
        "email": ("STOREFRONT_URL", storefront),
    }
    return {
        name: {variable: value}
        for name, (variable, value) in links.items()
        if value is not None and variable not in os.environ
    }
