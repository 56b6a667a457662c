import asyncio
import signal
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from chassis.background import Loop, in_background
from shop_cli.control_room.room import ControlRoom
from shop_cli.control_room.running import running, without_effect
from shop_cli.local.child_process import ChildProcess
from shop_cli.local.supervision import observe
from shop_cli.local.workspace import MAX_PORT_OFFSET, PORT_STEP, root
from shop_cli.output.next_steps import print_next_steps
from shop_cli.output.printing import console

# Exit codes that count as a normal stop. A service that is still starting has no signal handler and ends with -SIGTERM.
_STOPPED = (0, -signal.SIGTERM)

Offset = Annotated[
    int,
    typer.Option(
        min=0, max=MAX_PORT_OFFSET, help="Add this multiple of 100 to every default port, for a shop beside another."
    ),
]
WithPostgres = Annotated[
    bool, typer.Option("--postgres", help="Store everything in PostgreSQL and Valkey, which are started as well.")
]
WithTls = Annotated[
    bool,
    typer.Option(
        "--tls",
        help="Mutual TLS between services, with certificates in .shop/tls/; commands use that of `operator`. "
        "Databases and telemetry stay in plaintext, on loopback.",
    ),
]


async def up(
    *,
    port_offset: Offset = 0,
    any_ports: Annotated[bool, typer.Option("--any-ports", help="Use free ports instead of the default ones.")] = False,
    folder: Annotated[Path | None, typer.Option(help="Folder for the services' data. Default: the repository.")] = None,
    postgres: WithPostgres = False,
    tls: WithTls = False,
    lab: Annotated[
        bool, typer.Option("--lab", help="Let services be made to fail: `shop faults`, Faults and Mystery.")
    ] = False,
) -> None:
    """Start all services and the control room, restart services that exit, and stop everything on Ctrl-C.

    In `--folder`, data and logs are written under `.shop/`, and secrets under `.shop-secrets/`. Settings such as
    REDIS_URL, SMTP_URL or OTEL_EXPORTER_OTLP_ENDPOINT are read from the environment; DATABASE_URL is not.
    """
    if port_offset % PORT_STEP:
        raise typer.BadParameter(f"must be a multiple of {PORT_STEP}", param_hint="--port-offset")
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    if names := ", ".join(without_effect()):
        console.out(f"without effect, as OTEL_EXPORTER_OTLP_ENDPOINT is not set: {names}")
    data, ports = (folder or root()).resolve(), None if any_ports else port_offset
    async with (
        running(data, ports, postgres=postgres, tls=tls, lab=lab) as room,
        in_background(*_observers(room, folder)),
    ):
        await stopped.wait()
        console.out("stopping ...")
    codes = {process.name: process.exit_code for process in room.processes}
    failed = [f"{name} ended with status {code}" for name, code in codes.items() if code not in _STOPPED]
    console.out("; ".join(["stopped", *failed]))


def _observers(room: ControlRoom, folder: Path | None) -> list[Loop]:
    """Return loops that print each process's state changes and, once all processes are ready, the next steps."""
    was_ready = False

    def report(process: ChildProcess) -> None:
        nonlocal was_ready
        console.out(f"{process.name:<16} {process.address:<16} {process.state}")
        if (process.exit_code or 0) > 0:
            console.out(f"  {process.last_lines()}")
        if not was_ready and all(process.state == "serving" for process in room.processes):
            was_ready = True
            print_next_steps(room.run, folder)

    return [partial(observe, process, report) for process in room.processes]
