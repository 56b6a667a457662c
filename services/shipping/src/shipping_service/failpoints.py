"""Failpoints of the shipping service, named `<service>.<operation>.<before|after>`: see `chassis.failpoints`."""

BEFORE_SHIP = "shipping.ship.before"
AFTER_SHIP = "shipping.ship.after"

FAILPOINTS = (BEFORE_SHIP, AFTER_SHIP)
