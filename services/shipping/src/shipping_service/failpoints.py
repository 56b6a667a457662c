"""Shipping's failpoints, named `<service>.<operation>.<before|after>`: see chassis.failpoints."""

SHIP = ("shipping.ship.before", "shipping.ship.after")
RESOLVE_OR_FENCE = ("shipping.resolve_or_fence.before", "shipping.resolve_or_fence.after")
FAILPOINTS = SHIP + RESOLVE_OR_FENCE
