"""Checkout's failpoints, named `<service>.<operation>.<before|after>`: see chassis.failpoints."""

from typing import Any

from checkout_service import commands
from checkout_service.commands import Command


def around(command: type[Command[Any]]) -> tuple[str, str]:
    return f"checkout.{command.name}.before", f"checkout.{command.name}.after"


QUOTED = "checkout.quote.after"
TAKEN_OVER = "checkout.take_over.after"
EMAIL_SENT = "checkout.send_email.after"
CART_EMPTIED = "checkout.empty_cart.after"
COMPLETE = ("checkout.settle.before", "checkout.settle.after")

RESOLVE = around(commands.Resolve)
# Orders that the shipping service refuses reach these failpoints.
VOID = around(commands.ResolveShipment) + around(commands.Void)

# Every placed order reaches these failpoints, in this sequence. The failpoints around StartRemoval are left out because
# they mark the same moments as `ship.after` and `update.before`.
ORDER_PATH = (
    QUOTED,
    *around(commands.Insert),
    *around(commands.Charge),
    *around(commands.Ship),
    *around(commands.Update),
    *around(commands.Send),
    EMAIL_SENT,
    CART_EMPTIED,
    *COMPLETE,
)

FAILPOINTS = (*ORDER_PATH, TAKEN_OVER, *RESOLVE, *VOID)
