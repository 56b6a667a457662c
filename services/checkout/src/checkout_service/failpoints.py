"""Checkout's failpoints, named `<service>.<operation>.<before|after>`: see chassis.failpoints."""

from typing import Any

from checkout_service import commands
from checkout_service.commands import Command


def _around(operation: str) -> tuple[str, str]:
    return f"checkout.{operation}.before", f"checkout.{operation}.after"


# Names of a saga's commands in failpoints and metrics.
COMMAND_NAMES: dict[type[Command[Any]], str] = {
    commands.Insert: "insert",
    commands.Charge: "charge",
    commands.Resolve: "resolve",
    commands.Ship: "ship",
    commands.ResolveShipment: "resolve_shipment",
    commands.Void: "void",
    commands.StartRemoval: "start_removal",
    commands.Update: "update",
    commands.Restore: "restore",
    commands.Send: "send",
}

# Before and after each command of a saga.
COMMAND_FAILPOINTS = {command: _around(name) for command, name in COMMAND_NAMES.items()}

QUOTED = "checkout.quote.after"
TAKEN_OVER = "checkout.take_over.after"
EMAIL_SENT = "checkout.send_email.after"
CART_EMPTIED = "checkout.empty_cart.after"
SETTLE = _around("settle")

RESOLVE = _around("resolve")
# Reached by orders that shipping refuses.
VOID = _around("resolve_shipment") + _around("void")

# `ship.after` and `update.before` are the same moments as those around `start_removal`, which is therefore left out.
_ORDER_COMMANDS = ("insert", "charge", "ship", "update", "send")

# Reached by every placed order, in this order.
ORDER_PATH = (
    QUOTED, *(name for command in _ORDER_COMMANDS for name in _around(command)), EMAIL_SENT, CART_EMPTIED, *SETTLE,
)  # fmt: skip

FAILPOINTS = (*ORDER_PATH, TAKEN_OVER, *RESOLVE, *VOID)
