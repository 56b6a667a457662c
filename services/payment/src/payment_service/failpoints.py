"""Payment's failpoints, named `<service>.<operation>.<before|after>`: see chassis.failpoints."""

CHARGE = ("payment.charge.before", "payment.charge.after")
RESOLVE_OR_FENCE = ("payment.resolve_or_fence.before", "payment.resolve_or_fence.after")
VOID = ("payment.void.before", "payment.void.after")
FAILPOINTS = CHARGE + RESOLVE_OR_FENCE + VOID
