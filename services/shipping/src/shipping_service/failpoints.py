"""Failpoints of the shipping service, named `<service>.<operation>.<before|after>`: see `chassis.failpoints`."""

BEFORE_SHIP = "shipping.ship.before"
AFTER_SHIP = "shipping.ship.after"
BEFORE_RESOLVE_OR_FENCE = "shipping.resolve_or_fence.before"
AFTER_RESOLVE_OR_FENCE = "shipping.resolve_or_fence.after"

SHIP = (BEFORE_SHIP, AFTER_SHIP)
RESOLVE_OR_FENCE = (BEFORE_RESOLVE_OR_FENCE, AFTER_RESOLVE_OR_FENCE)
FAILPOINTS = SHIP + RESOLVE_OR_FENCE
