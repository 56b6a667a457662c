"""`shop up`: run the whole shop on this machine until Ctrl-C."""

import asyncio
import signal
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from shop_cli.commands.options import async_command
from shop_cli.local.ports import reserved
from shop_cli.local.processes import Shop
from shop_cli.local.states import process_states
from shop_cli.local.supervision import supervise
from shop_cli.local.workspace import default_ports, discover, root
from shop_cli.output.printing import console
from shop_cli.output.status_display import StatusDisplay

_REFRESH_SECONDS = 0.5
# A service that is still starting has no signal handler yet and ends by the signal.
_STOPPED = (0, -signal.SIGTERM)

Offset = Annotated[
    int, typer.Option(min=0, help="Add this to every default port, to run a second shop beside the first.")
]
AnyPorts = Annotated[bool, typer.Option("--any-ports", help="Use free ports instead of the default ones.")]
Folder = Annotated[Path | None, typer.Option(help="Folder for the services' data. Default: the repository.")]


@async_command
async def up(*, port_offset: Offset = 0, any_ports: AnyPorts = False, folder: Folder = None) -> None:
    """Start all services, restart those that end, and stop everything on Ctrl-C.

    Data and logs are written below `.shop/` in the folder, secrets below `.shop-secrets/`. Settings such as REDIS_URL,
    SMTP_URL or OTEL_EXPORTER_OTLP_ENDPOINT are read from the environment.
    """
    programs = discover()
    stopped = _event_set_by_signals()
    with ExitStack() as stack:
        ports = {name: port + port_offset for name, port in default_ports(programs).items()}
        if any_ports:
            ports = dict(zip(ports, stack.enter_context(reserved(len(ports))), strict=True))
        async with Shop(programs, folder or root(), ports) as shop:
            await _run_until(stopped, shop)
            console.print("stopping ...")
    codes = {process.name: process.exit_code for process in shop}
    failed = [f"{name} ended with status {code}" for name, code in codes.items() if code not in _STOPPED]
    console.print("; ".join(["stopped", *failed]))


def _event_set_by_signals() -> asyncio.Event:
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    return stopped


async def _run_until(stopped: asyncio.Event, shop: Shop) -> None:
    supervision = asyncio.create_task(supervise(shop), name="supervise")
    try:
        with StatusDisplay(shop) as display:
            while not stopped.is_set():
                display.update(await process_states(shop))
                await _wait_for_refresh(stopped)
    finally:
        supervision.cancel()
        await asyncio.gather(supervision, return_exceptions=True)


async def _wait_for_refresh(stopped: asyncio.Event) -> None:
    try:
        await asyncio.wait_for(stopped.wait(), _REFRESH_SECONDS)
    except TimeoutError:
        return
