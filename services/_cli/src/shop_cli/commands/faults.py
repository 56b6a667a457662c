"""`shop kill`, `freeze`, `resume` and `restart`: disturb a service of the running shop."""

from typing import Annotated

import typer

from shop_cli import control_room_client
from shop_cli.output.printing import console

Service = Annotated[str, typer.Argument(metavar="SERVICE", help="Name of the service.")]


def kill(service: Service) -> None:
    """Kill a service (SIGKILL); `shop up` starts it again."""
    control_room_client.act("kill", service)
    console.print(f"{service} was killed; `shop up` starts it again", markup=False)


def freeze(service: Service) -> None:
    """Freeze a service (SIGSTOP): it keeps its connections and does not respond."""
    control_room_client.act("freeze", service)
    console.print(f"{service} is frozen until `shop resume {service}`", markup=False)


def resume(service: Service) -> None:
    """Let a frozen service continue (SIGCONT)."""
    control_room_client.act("resume", service)
    console.print(f"{service} continues", markup=False)


def restart(service: Service) -> None:
    """Drain and stop a service (SIGTERM); `shop up` starts it again."""
    control_room_client.act("restart", service)
    console.print(f"{service} drains, stops and is started again", markup=False)
