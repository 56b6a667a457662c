"""`shop resume`."""

from shop_cli import control_room_client
from shop_cli.commands.options import Service
from shop_cli.output.printing import console


def resume(service: Service) -> None:
    """Let a frozen service continue (SIGCONT)."""
    control_room_client.act("resume", service)
    console.print(f"{service} continues", markup=False)
