"""Payment's failpoints, named `<service>.<operation>.<before|after>`: see chassis.failpoints."""

BEFORE_CHARGE = "payment.charge.before"
AFTER_CHARGE = "payment.charge.after"
BEFORE_RESOLVE_OR_FENCE = "payment.resolve_or_fence.before"
AFTER_RESOLVE_OR_FENCE = "payment.resolve_or_fence.after"
BEFORE_VOID = "payment.void.before"
AFTER_VOID = "payment.void.after"

CHARGE = (BEFORE_CHARGE, AFTER_CHARGE)
RESOLVE_OR_FENCE = (BEFORE_RESOLVE_OR_FENCE, AFTER_RESOLVE_OR_FENCE)
VOID = (BEFORE_VOID, AFTER_VOID)
FAILPOINTS = CHARGE + RESOLVE_OR_FENCE + VOID
