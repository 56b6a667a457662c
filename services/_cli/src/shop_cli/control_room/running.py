"""Runs a whole shop with its control room: what `shop up` does."""

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shop_cli.control_room.app import served
from shop_cli.control_room.customers import Customers
from shop_cli.control_room.proof import proving
from shop_cli.control_room.room import Room
from shop_cli.local.data_stores import data_stores
from shop_cli.local.otlp_receiver import exporting_to, receiver
from shop_cli.local.ports import HOST, require_free, reserved
from shop_cli.local.processes import Shop
from shop_cli.local.run_file import Run, locked, published
from shop_cli.local.states import Monitor
from shop_cli.local.supervision import supervise
from shop_cli.local.telemetry_store import TelemetryStore
from shop_cli.local.workspace import Program, default_ports, discover

PORT = 8090
_NAME = "control-room"
_ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
# A trace is complete about this long after its last span; a shorter delay costs idle processes more.
_EXPORT_MILLISECONDS = 1_000


@dataclass(frozen=True)
class Options:
    """How to run the shop.

    Attributes:
        folder: for data, logs and secrets.
        port_offset: is added to every default port.
        any_ports: use free ports instead.
        postgres: store everything in PostgreSQL and Valkey instead of SQLite files and memory.
    """

    folder: Path
    port_offset: int = 0
    any_ports: bool = False
    postgres: bool = False


@dataclass(frozen=True)
class RunningShop:
    """A shop that runs until the context of `running` is left.

    Attributes:
        url: the link to the control room, with its token.
    """

    shop: Shop
    monitor: Monitor
    url: str
    storefront: str | None
    employee_api: str | None


@asynccontextmanager
async def running(options: Options) -> AsyncIterator[RunningShop]:
    """Start the shop and its control room, restart services that end, and stop everything on leaving.

    Raise ShopRunning, FolderNotWritable, PortInUse or StoreMissing.
    """
    programs = discover()
    async with AsyncExitStack() as stack:
        stack.enter_context(locked(options.folder))
        ports = _ports(stack, programs, options)
        require_free(ports[_NAME], "control room")
        run = _describe(ports, options.folder)
        stores = await stack.enter_async_context(data_stores(options.folder)) if options.postgres else {}
        telemetry, environment = TelemetryStore(), dict(os.environ)
        elsewhere = environment.get(_ENDPOINT)
        if not elsewhere:
            (otlp_port,) = stack.enter_context(reserved(1))
            await stack.enter_async_context(receiver(otlp_port, telemetry))
            environment |= exporting_to(otlp_port, delay_milliseconds=_EXPORT_MILLISECONDS)
            environment["OTEL_METRIC_EXPORT_INTERVAL"] = "60000"  # the figures are those of the spans
        # The addresses never change here, and idle services would renew the connections that watch their health.
        environment.setdefault("MAX_CONNECTION_AGE_SECONDS", "3600")
        storefront, employee_api = (
            f"http://localhost:{ports[name]}" if name in ports else None for name in ("storefront", "employee-api")
        )
        overrides = _overrides(programs, stores, _environment_of_views(run, storefront, environment))
        shop = await stack.enter_async_context(Shop(programs, options.folder, ports, environment, overrides))
        monitor = Monitor(shop)
        await stack.enter_async_context(_in_background(supervise(shop), monitor.run()))
        prover = await stack.enter_async_context(proving(shop))
        log_path = options.folder / ".shop" / "log" / "customers.log"
        room = Room(shop, monitor, telemetry, prover, Customers(storefront, log_path), storefront, elsewhere)
        stack.push_async_callback(room.close)
        await stack.enter_async_context(served(room, ports[_NAME], run.token))
        stack.enter_context(published(run))
        yield RunningShop(shop, monitor, f"{run.control_room}/?token={run.token}", storefront, employee_api)


def _ports(stack: AsyncExitStack, programs: list[Program], options: Options) -> dict[str, int]:
    ports = {**default_ports(programs), _NAME: PORT}
    if options.any_ports:
        return dict(zip(ports, stack.enter_context(reserved(len(ports))), strict=True))
    return {name: port + options.port_offset for name, port in ports.items()}


def _describe(ports: Mapping[str, int], folder: Path) -> Run:
    addresses = {name: f"{HOST}:{port}" for name, port in ports.items() if name != _NAME}
    return Run(os.getpid(), str(folder), addresses, f"http://localhost:{ports[_NAME]}", secrets.token_urlsafe(24))


def _environment_of_views(
    run: Run, storefront: str | None, environment: Mapping[str, str]
) -> dict[str, dict[str, str]]:
    """Return the variables that link storefront, e-mails and control room, unless the environment sets them."""
    host = run.control_room.removeprefix("http://localhost")
    links = {
        "storefront": {"TRACES_URL": f"http://shop:{run.token}@{HOST}{host}"},
        "email": {"STOREFRONT_URL": storefront} if storefront else {},
    }
    return {
        name: {variable: value for variable, value in variables.items() if variable not in environment}
        for name, variables in links.items()
    }


def _overrides(
    programs: list[Program], stores: Mapping[str, Mapping[str, str]], links: Mapping[str, Mapping[str, str]]
) -> dict[str, dict[str, str]]:
    names = [program.name for program in programs]
    return {name: {**stores.get(name, {}), **links.get(name, {})} for name in names}


@asynccontextmanager
async def _in_background(*work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run coroutines until the context is left."""
    tasks = [asyncio.create_task(each) for each in work]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
