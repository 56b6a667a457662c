"""The email service's failpoints, named `<service>.<operation>.<before|after>`: see `chassis.failpoints`.

Each batch reaches `accept` once: `before` when all confirmations are rendered, `after` when all are on disk. At
`sending`, the relay doesn't have the complete message yet; at `outcome`, the attempt to send is over.
"""

BEFORE_ACCEPT = "email.accept.before"
AFTER_ACCEPT = "email.accept.after"
BEFORE_SENDING = "email.sending.before"
AFTER_SENDING = "email.sending.after"
BEFORE_OUTCOME = "email.outcome.before"
AFTER_OUTCOME = "email.outcome.after"

FAILPOINTS = (BEFORE_ACCEPT, AFTER_ACCEPT, BEFORE_SENDING, AFTER_SENDING, BEFORE_OUTCOME, AFTER_OUTCOME)
