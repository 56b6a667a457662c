"""Arguments and options that several commands share."""

import math
from typing import Annotated, Any

import typer

from shop_cli.output.printing import state_name

MAX_INT32 = 2**31 - 1

_HELP = "Address of the{} service. Default: $<SERVICE>{}_ADDR, the running shop's, the local port."
Address = Annotated[str | None, typer.Option(metavar="HOST:PORT", help=_HELP.format("", ""))]
InternalAddress = Annotated[str | None, typer.Option(metavar="HOST:PORT", help=_HELP.format(" internal", "_INTERNAL"))]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Key = Annotated[
    str | None, typer.Option(help="Idempotency key: repeating the request with the same key has no further effect.")
]
OrderId = Annotated[str, typer.Argument(metavar="ORDER", help="Id of the order.")]
ProductId = Annotated[str, typer.Argument(metavar="PRODUCT", help="Id of the product.")]
Service = Annotated[str, typer.Argument(metavar="SERVICE", help="Name of the service.")]
User = Annotated[str, typer.Argument(metavar="USER", help="Id of the user.")]


def finite(value: float) -> float:
    """Return a number. Raise BadParameter if it is infinite or NaN, which `min` lets pass."""
    if not math.isfinite(value):
        raise typer.BadParameter(f"{value} is not finite")
    return value


def parse_state(states: Any, name: str) -> Any:
    """Return the enum value whose `state_name` is `name`, ignoring case. Raise BadParameter for an unknown name."""
    by_name = {state_name(states, value): value for value in states.values() if value}
    if name.upper() not in by_name:
        expected = ", ".join(by_name)
        raise typer.BadParameter(f"unknown state {name}: expected one of {expected}", param_hint="--state")
    return by_name[name.upper()]
