"""Checkout's failpoints, named `<service>.<operation>.<before|after>`: see chassis.failpoints."""

from typing import Any

from checkout_service import saga
from checkout_service.saga import Command


def _around(operation: str) -> tuple[str, str]:
    return f"checkout.{operation}.before", f"checkout.{operation}.after"


_ORDER_COMMANDS: dict[type[Command[Any]], str] = {
    command: command.__name__.lower() for command in (saga.Insert, saga.Charge, saga.Ship, saga.Update, saga.Send)
}

COMMAND_NAMES = {
    **_ORDER_COMMANDS,
    saga.Resolve: "resolve",
    saga.ResolveShipment: "resolve_shipment",
    saga.Void: "void",
    saga.StartRemoval: "start_removal",
    saga.Restore: "restore",
}
"""Names of a saga's commands in failpoints and metrics."""

COMMAND_FAILPOINTS = {command: _around(name) for command, name in COMMAND_NAMES.items()}
"""Before and after each command of a saga."""

QUOTED = "checkout.quote.after"
TAKEN_OVER = "checkout.take_over.after"
EMAIL_SENT = "checkout.send_email.after"
CART_EMPTIED = "checkout.empty_cart.after"
SETTLE = _around("settle")

RESOLVE = COMMAND_FAILPOINTS[saga.Resolve]
VOID = COMMAND_FAILPOINTS[saga.ResolveShipment] + COMMAND_FAILPOINTS[saga.Void]
"""Reached by orders that shipping refuses."""

ORDER_PATH = (
    QUOTED,
    *(name for command in _ORDER_COMMANDS for name in COMMAND_FAILPOINTS[command]),
    EMAIL_SENT,
    CART_EMPTIED,
    *SETTLE,
)
"""Reached by every placed order, in this order."""

RECOVERY = (TAKEN_OVER, *RESOLVE, *VOID)
"""Reached by recovery, and by orders that shipping refuses."""

FAILPOINTS = ORDER_PATH + RECOVERY
