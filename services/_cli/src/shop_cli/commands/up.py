"""`shop up`: run the whole shop on this machine until Ctrl-C."""

import asyncio
import signal
from pathlib import Path
from typing import Annotated

import typer

from shop_cli.commands.options import async_command
from shop_cli.control_room.room import ControlRoom
from shop_cli.control_room.running import Options, running, without_effect
from shop_cli.local.workspace import MAX_PORT_OFFSET, PORT_STEP, root
from shop_cli.output.next_steps import print_next_steps
from shop_cli.output.printing import console
from shop_cli.output.status_display import StatusDisplay

# A service that is still starting has no signal handler yet and ends by the signal.
_STOPPED = (0, -signal.SIGTERM)

Offset = Annotated[
    int,
    typer.Option(
        min=0, max=MAX_PORT_OFFSET, help="Add this multiple of 100 to every default port, for a shop beside another."
    ),
]
AnyPorts = Annotated[bool, typer.Option("--any-ports", help="Use free ports instead of the default ones.")]
Folder = Annotated[Path | None, typer.Option(help="Folder for the services' data. Default: the repository.")]
WithPostgres = Annotated[
    bool, typer.Option("--postgres", help="Store everything in PostgreSQL and Valkey, which are started as well.")
]

WithTls = Annotated[
    bool,
    typer.Option(
        "--tls",
        help="Mutual TLS between services, with certificates in .shop/tls/; commands use the one of `operator`. "
        "Databases and telemetry stay in plaintext, on loopback.",
    ),
]

WithLab = Annotated[bool, typer.Option("--lab", help="For `shop faults`: services can be made to fail.")]


@async_command
async def up(
    *,
    port_offset: Offset = 0,
    any_ports: AnyPorts = False,
    folder: Folder = None,
    postgres: WithPostgres = False,
    tls: WithTls = False,
    lab: WithLab = False,
) -> None:
    """Start all services and the control room, restart services that end, and stop everything on Ctrl-C.

    Data and logs are written below `.shop/` in the folder, secrets below `.shop-secrets/`. Settings such as REDIS_URL,
    SMTP_URL or OTEL_EXPORTER_OTLP_ENDPOINT are read from the environment.
    """
    if port_offset % PORT_STEP:
        raise typer.BadParameter(f"must be a multiple of {PORT_STEP}", param_hint="--port-offset")
    stopped = _event_set_by_signals()
    data = (folder or root()).resolve()
    if names := ", ".join(without_effect()):
        console.print(
            f"without effect, as OTEL_EXPORTER_OTLP_ENDPOINT is not set: {names}", markup=False, soft_wrap=True
        )
    async with running(data, Options(port_offset, any_ports, postgres, tls, lab)) as room:
        await _show_until(stopped, room, folder)
        console.print("stopping ...")
    codes = {process.name: process.exit_code for process in room.processes}
    failed = [f"{name} ended with status {code}" for name, code in codes.items() if code not in _STOPPED]
    console.print("; ".join(["stopped", *failed]))


def _event_set_by_signals() -> asyncio.Event:
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    return stopped


async def _show_until(stopped: asyncio.Event, room: ControlRoom, folder: Path | None) -> None:
    """Show the states of the services as they change, and once what to do next."""
    was_ready = False
    stopping = asyncio.create_task(stopped.wait())
    with StatusDisplay(room.processes) as display:
        while not stopped.is_set():
            display.update(room.monitor.states)
            if room.monitor.all_serving and not was_ready:
                was_ready = True
                print_next_steps(room.run, folder)
            changing = asyncio.create_task(room.monitor.wait_for_change())
            await asyncio.wait({stopping, changing}, return_when=asyncio.FIRST_COMPLETED)
            changing.cancel()
