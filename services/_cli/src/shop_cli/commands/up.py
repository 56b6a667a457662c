"""`shop up`: the whole shop on this machine, kept up until Ctrl-C."""

import asyncio
import signal
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from shop_cli.clients import synchronous
from shop_cli.local.ports import reserved
from shop_cli.local.processes import Shop
from shop_cli.local.states import StatesDisplay, states_of
from shop_cli.local.supervision import keep_running
from shop_cli.local.workspace import Program, discover, root
from shop_cli.output import console

_REFRESH_SECONDS = 0.5
# The second one is of a service that was still starting.
_STOPPED = (0, -signal.SIGTERM)

Offset = Annotated[int, typer.Option(min=0, help="Added to every usual port, for a second shop beside the first.")]
AnyPorts = Annotated[bool, typer.Option("--any-ports", help="Take free ports instead of the usual ones.")]

Folder = Annotated[Path | None, typer.Option(help="Where the services keep their data; the repository else.")]


@synchronous
async def up(*, port_offset: Offset = 0, any_ports: AnyPorts = False, folder: Folder = None) -> None:
    """Start every service and keep it up; stop all of them on Ctrl-C.

    Their data and logs are below `.shop/` in the folder. Settings such as REDIS_URL, SMTP_URL or
    OTEL_EXPORTER_OTLP_ENDPOINT are taken from the environment.
    """
    programs = discover()
    stopped = _stopped_by_signal()
    with ExitStack() as stack:
        ports = stack.enter_context(reserved(len(programs))) if any_ports else _usual(programs, port_offset)
        by_name = {program.name: port for program, port in zip(programs, ports, strict=True)}
        async with Shop(programs, folder or root(), by_name) as shop:
            await _watch(shop, stopped)
            console.print("stopping ...")
    codes = {process.name: process.exit_code for process in shop}
    failed = [f"{name} ended with status {code}" for name, code in codes.items() if code not in _STOPPED]
    console.print("; ".join(["stopped", *failed]))


def _usual(programs: Iterable[Program], offset: int) -> list[int]:
    return [program.port + offset for program in programs]


def _stopped_by_signal() -> asyncio.Event:
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    return stopped


async def _watch(shop: Shop, stopped: asyncio.Event) -> None:
    """Keep the services running and tell their states, until stopped."""
    keeping = asyncio.create_task(keep_running(shop), name="keep running")
    try:
        with StatesDisplay(shop) as display:
            while not stopped.is_set():
                display.show(await states_of(shop))
                await _sleep_or_stop(stopped)
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)


async def _sleep_or_stop(stopped: asyncio.Event) -> None:
    try:
        await asyncio.wait_for(stopped.wait(), _REFRESH_SECONDS)
    except TimeoutError:
        return
