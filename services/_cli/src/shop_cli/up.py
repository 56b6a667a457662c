"""`shop up`: the whole shop on this machine, kept up until Ctrl-C."""

import asyncio
import signal
import time
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Annotated

import typer
from rich.live import Live
from rich.table import Table

from shop_cli.output import console, table
from shop_cli.peers import synchronous
from shop_cli.ports import reserved
from shop_cli.processes import Process, Shop
from shop_cli.supervision import keep_running
from shop_cli.workspace import Program, discover, root

_REFRESH_SECONDS = 0.5

Offset = Annotated[int, typer.Option(min=0, help="Added to every usual port, for a second shop beside the first.")]
AnyPorts = Annotated[bool, typer.Option("--any-ports", help="Take free ports instead of the usual ones.")]


@synchronous
async def up(*, port_offset: Offset = 0, any_ports: AnyPorts = False) -> None:
    """Start every service and keep it up; stop all of them on Ctrl-C.

    Their data and logs are below `.shop/` in the repository. Settings such as REDIS_URL, SMTP_URL or
    OTEL_EXPORTER_OTLP_ENDPOINT are taken from the environment.
    """
    programs = discover()
    stopped = _stopped_by_signal()
    with ExitStack() as stack:
        ports = stack.enter_context(reserved(len(programs))) if any_ports else _usual(programs, port_offset)
        by_name = {program.name: port for program, port in zip(programs, ports, strict=True)}
        async with Shop(programs, root(), by_name) as shop:
            await _watch(shop, stopped)
            console.print("stopping ...")
        codes = {process.name: process.exit_code for process in shop}
    failed = [f"{name} with status {code}" for name, code in codes.items() if code]
    console.print(f"stopped{': ' if failed else ''}{', '.join(failed)}")


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
    announced = False
    try:
        with Live(console=console, auto_refresh=False, transient=False) as live:
            while not stopped.is_set():
                states = await states_of(shop)
                live.update(states_table(shop, states), refresh=console.is_terminal)
                if not announced and set(states.values()) == {"serving"}:
                    announced = True
                    live.console.print("The shop is up. Ctrl-C stops it.")
                await _sleep_or_stop(stopped)
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)


async def _sleep_or_stop(stopped: asyncio.Event) -> None:
    try:
        await asyncio.wait_for(stopped.wait(), _REFRESH_SECONDS)
    except TimeoutError:
        return


async def states_of(shop: Iterable[Process]) -> dict[str, str]:
    """In a word for each process: starting, serving, not ready, or how it ended."""
    processes = list(shop)
    return dict(zip((each.name for each in processes), await asyncio.gather(*map(_state, processes)), strict=True))


async def _state(process: Process) -> str:
    if not process.running:
        return f"ended ({process.exit_code})"
    if await process.is_serving():
        return "serving"
    return "starting" if time.monotonic() - process.started_at < _STARTING_SECONDS else "not ready"


_STARTING_SECONDS = 10.0
_COLOURS = {"serving": "green", "starting": "yellow"}


def states_table(shop: Iterable[Process], states: dict[str, str]) -> Table:
    """Addresses and states."""
    made = table(["Service", "Address", "State", "Restarts ", "Log"], [])
    for process in shop:
        state = states[process.name]
        made.add_row(
            process.name,
            process.address,
            f"[{_COLOURS.get(state, 'red')}]{state}",
            str(max(0, process.starts - 1)),
            f".shop/log/{process.name}.log",
        )
    return made
