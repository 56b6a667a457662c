"""The email service's failpoints, named `<service>.<operation>.<before|after>`: see `chassis.failpoints`.

A batch reaches `accept.before` when all its confirmations are rendered, and `accept.after` when all are on disk. At
`sending`, the relay doesn't have the complete message yet. At `outcome`, the attempt to send it has ended.
"""

ACCEPT = ("email.accept.before", "email.accept.after")
SENDING = ("email.sending.before", "email.sending.after")
OUTCOME = ("email.outcome.before", "email.outcome.after")
FAILPOINTS = ACCEPT + SENDING + OUTCOME
