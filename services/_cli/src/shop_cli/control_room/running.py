import os
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from importlib import metadata
from pathlib import Path

from chassis.background import in_background
from chassis.errors import FailedPrecondition
from checkout_service.reconciliation.reader import open_reader
from shop_cli.control_room.app import served
from shop_cli.control_room.reconciliation import Reconciler, open_channel
from shop_cli.control_room.room import ControlRoom
from shop_cli.local.child_process import ChildProcess
from shop_cli.local.identities import Identities
from shop_cli.local.otlp_receiver import exporting_to, receiver
from shop_cli.local.ports import HOST, kept_from_connections, require_free, reserved
from shop_cli.local.processes import Shop
from shop_cli.local.run_file import DATA, Run, locked, published
from shop_cli.local.supervision import supervise
from shop_cli.local.telemetry_store import TelemetryStore
from shop_cli.local.workspace import Program, default_ports, discover, internal_name

PORT = 8090
_NAME = "control-room"
_EXPORTER = "OTEL_EXPORTER_OTLP_"
_ENDPOINT = f"{_EXPORTER}ENDPOINT"
# How often services export telemetry. A trace may stay incomplete for this long after its last span ends.
_EXPORT_MILLISECONDS = 1_000

Variables = Mapping[str, Mapping[str, str]]
"""Environment variables by program name."""


@asynccontextmanager
async def running(
    folder: Path, port_offset: int | None, *, postgres: bool = False, tls: bool = False, lab: bool = False
) -> AsyncIterator[ControlRoom]:
    """Start the shop and its control room, restart services that exit, and stop everything when the context exits.

    Raise FailedPrecondition, for example PortInUse, if the shop cannot start.

    Args:
        folder: where data, logs and secrets are stored.
        port_offset: the number to add to every default port; None to use any free ports.
        postgres: whether to store everything in PostgreSQL and Valkey instead of SQLite files and memory.
        lab: whether services expose failpoints and plugins add sections to the control room.
    """
    programs, telemetry = discover(), TelemetryStore()
    async with AsyncExitStack() as stack:
        stack.enter_context(locked(folder))
        ports = _ports(stack, programs, port_offset, lab=lab)
        own_port = ports.pop(_NAME)
        names = [program.name for program in programs]
        identities = Identities.issue(folder / DATA / "tls", names, lab=lab) if tls else None
        run = _describe(folder, ports, own_port, identities, lab=lab)
        stores, databases = await _start_stores(stack, folder) if postgres else ((), {})
        environment = await _environment(stack, telemetry)
        links, failing = _links(run), {"LAB": "1"} if lab else {}
        overrides = {name: {**databases.get(name, {}), **links.get(name, {}), **failing} for name in names}
        shop = Shop(programs, folder, ports, environment, overrides, identities=identities)
        await stack.enter_async_context(shop)
        reader = await stack.enter_async_context(open_reader(partial(open_channel, shop)))
        room = ControlRoom(run, shop, stores, telemetry, Reconciler(reader), os.environ.get(_ENDPOINT))
        for plugin in metadata.entry_points(group="shop_cli.sections") if lab else ():
            room.sections[plugin.name] = plugin.load()(room, folder)
        await stack.enter_async_context(in_background(*(partial(supervise, process) for process in room.processes)))
        stack.push_async_callback(room.close)
        await stack.enter_async_context(served(room))
        stack.enter_context(published(run))
        yield room


def _ports(stack: AsyncExitStack, programs: Sequence[Program], offset: int | None, *, lab: bool) -> dict[str, int]:
    """Return each program's port, by name. Raise PortInUse if another program uses one of these ports.

    With `lab`, every gRPC service gets an internal port for failpoints: 11051 for the service on 50051, and so on.
    """
    ports = {**default_ports(programs), _NAME: PORT}
    for program in programs if lab else ():
        if program.protocol == "grpc":
            ports[internal_name(program.name)] = program.port - 39_000
    if offset is None:
        return dict(zip(ports, stack.enter_context(reserved(len(ports))), strict=True))
    raised = {name: port + offset for name, port in ports.items()}
    for name, port in raised.items():
        require_free(port, name)
    stack.enter_context(kept_from_connections(raised.values()))
    return raised


def _describe(folder: Path, ports: Mapping[str, int], port: int, identities: Identities | None, *, lab: bool) -> Run:
    addresses = {name: f"{HOST}:{number}" for name, number in ports.items()}
    url, token = f"http://localhost:{port}", secrets.token_urlsafe(24)
    tls_folder = str(identities.operator.folder) if identities else ""
    return Run(os.getpid(), str(folder), addresses, url, token, tls_folder, lab)


async def _start_stores(stack: AsyncExitStack, folder: Path) -> tuple[Sequence[ChildProcess], Variables]:
    try:
        from shop_cli.local.stores import data_stores  # noqa: PLC0415 - this import needs optional packages
    except ImportError as error:
        message = f"{error.name} is not installed: make setup does so in the repository"
        raise FailedPrecondition(message, reason="STORE_MISSING") from error
    return await stack.enter_async_context(data_stores(folder))


async def _environment(stack: AsyncExitStack, telemetry: TelemetryStore) -> Mapping[str, str]:
    """Return the services' environment. Services export to this process unless $OTEL_EXPORTER_OTLP_ENDPOINT is set."""
    # Local addresses never change, so services needn't reconnect often to look them up again.
    defaults = {"MAX_CONNECTION_AGE_SECONDS": "3600"}
    if not os.environ.get(_ENDPOINT):
        (port,) = stack.enter_context(reserved(1))
        await stack.enter_async_context(receiver(port, telemetry.add))
        defaults |= exporting_to(port, delay_milliseconds=_EXPORT_MILLISECONDS)
        defaults["OTEL_METRIC_EXPORT_INTERVAL"] = "60000"  # export rarely, because the control room doesn't use metrics
    ignored = without_effect()
    return {**defaults, **{name: value for name, value in os.environ.items() if value and name not in ignored}}


def without_effect() -> list[str]:
    """Return the names of exporter settings that have no effect because no endpoint is set."""
    found = [name for name, value in os.environ.items() if value and name.startswith(_EXPORTER)]
    return [] if _ENDPOINT in found else found


def _links(run: Run) -> Variables:
    """Return the storefront's TRACES_URL and the email service's STOREFRONT_URL, unless they are already set."""
    traces = f"http://shop:{run.token}@{HOST}:{run.control_room_port}"
    links = {"storefront": {"TRACES_URL": traces}, "email": {"STOREFRONT_URL": run.url("storefront") or ""}}
    return {name: found for name, found in links.items() if os.environ.keys().isdisjoint(found)}
