"""Failpoints of the email service, named `<service>.<operation>.<before|after>`: see `chassis.failpoints`.

A batch reaches `accept` once: its confirmations are rendered before it, and on disk after it. Before `sending`, the
relay has no complete message; before `outcome`, it has responded.
"""

BEFORE_ACCEPT = "email.accept.before"
AFTER_ACCEPT = "email.accept.after"
BEFORE_SENDING = "email.sending.before"
AFTER_SENDING = "email.sending.after"
BEFORE_OUTCOME = "email.outcome.before"
AFTER_OUTCOME = "email.outcome.after"

FAILPOINTS = (BEFORE_ACCEPT, AFTER_ACCEPT, BEFORE_SENDING, AFTER_SENDING, BEFORE_OUTCOME, AFTER_OUTCOME)
