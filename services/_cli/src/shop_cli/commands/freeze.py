"""`shop freeze`."""

from shop_cli import control_room_client
from shop_cli.commands.options import Service
from shop_cli.output.printing import console


def freeze(service: Service) -> None:
    """Freeze a service (SIGSTOP): its connections remain, and it does not respond."""
    control_room_client.act("freeze", service)
    console.print(f"{service} is frozen until `shop resume {service}`", markup=False)
