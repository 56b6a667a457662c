"""`shop kill`."""

from shop_cli import control_room_client
from shop_cli.commands.options import Service
from shop_cli.output.printing import console


def kill(service: Service) -> None:
    """Kill a service (SIGKILL); `shop up` starts it again."""
    control_room_client.act("kill", service)
    console.print(f"{service} was killed; `shop up` starts it again", markup=False)
