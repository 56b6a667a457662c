"""`shop restart`."""

from shop_cli import control_room_client
from shop_cli.commands.options import Service
from shop_cli.output.printing import console


def restart(service: Service) -> None:
    """Drain and stop a service (SIGTERM); `shop up` starts it again."""
    control_room_client.act("restart", service)
    console.print(f"{service} drains, stops and is started again", markup=False)
