"""The email service's failpoints, named `<service>.<operation>.<before|after>`: see `chassis.failpoints`.

A batch reaches `accept.before` when all its confirmations are rendered, and `accept.after` when all are on disk. At
`sending`, the relay doesn't have the complete message yet. At `outcome`, the attempt to send it has ended.
"""

BEFORE_ACCEPT = "email.accept.before"
AFTER_ACCEPT = "email.accept.after"
BEFORE_SENDING = "email.sending.before"
AFTER_SENDING = "email.sending.after"
BEFORE_OUTCOME = "email.outcome.before"
AFTER_OUTCOME = "email.outcome.after"

FAILPOINTS = (BEFORE_ACCEPT, AFTER_ACCEPT, BEFORE_SENDING, AFTER_SENDING, BEFORE_OUTCOME, AFTER_OUTCOME)
