from shop_cli import control_room_client
from shop_cli.commands.options import Service
from shop_cli.output.printing import console


def kill(service: Service) -> None:
    """Kill a service (SIGKILL); `shop up` starts it again."""
    control_room_client.act("kill", service)
    console.out(f"{service} was killed; `shop up` starts it again")


def freeze(service: Service) -> None:
    """Freeze a service (SIGSTOP). Its connections stay open, but it does not respond."""
    control_room_client.act("freeze", service)
    console.out(f"{service} is frozen until `shop resume {service}`")


def resume(service: Service) -> None:
    """Let a frozen service continue (SIGCONT)."""
    control_room_client.act("resume", service)
    console.out(f"{service} continues")


def restart(service: Service) -> None:
    """Drain and stop a service (SIGTERM); `shop up` starts it again."""
    control_room_client.act("restart", service)
    console.out(f"{service} drains, stops and is started again")
