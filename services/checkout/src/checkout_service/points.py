"""The places where a test can make checkout die, hang or fail."""

from typing import Any

from checkout_service import saga
from checkout_service.saga import Command

AROUND: dict[type[Command[Any]], tuple[str, str]] = {
    saga.Insert: ("checkout.before_insert", "checkout.inserted"),
    saga.Charge: ("checkout.before_charge", "checkout.charged"),
    saga.Ship: ("checkout.before_ship", "checkout.shipped"),
    saga.Update: ("checkout.before_update", "checkout.updated"),
    saga.Send: ("checkout.before_send", "checkout.sent"),
    saga.Resolve: ("checkout.before_resolve", "checkout.resolved"),
    saga.Void: ("checkout.before_void", "checkout.voided"),
}
"""Before and after each command of a saga."""

READ = "checkout.read"
TAKEN_OVER = "checkout.taken_over"
EMAIL_SENT = "checkout.email_sent"
CART_EMPTIED = "checkout.cart_emptied"
BEFORE_SETTLE = "checkout.before_settle"
SETTLED = "checkout.settled"

ORDER_PATH = (
    READ,
    *(name for command, names in AROUND.items() if command not in {saga.Resolve, saga.Void} for name in names),
    EMAIL_SENT,
    CART_EMPTIED,
    BEFORE_SETTLE,
    SETTLED,
)
"""Points that every order passes."""

AROUND_RESOLVE = AROUND[saga.Resolve]
AROUND_VOID = AROUND[saga.Void]

RECOVERY = (TAKEN_OVER, *AROUND_RESOLVE, *AROUND_VOID)
"""Points of recovery and of orders that shipping refuses."""

FAILPOINTS = ORDER_PATH + RECOVERY
