"""Failpoints of the email service, named `<service>.<operation>.<before|after>`: see `chassis.failpoints`.

`accept` is reached once for each batch: all of its e-mails are rendered before it, and on disk after it.
The relay has no complete letter before `sending` has begun, and has responded before `outcome`.
"""

BEFORE_ACCEPT = "email.accept.before"
AFTER_ACCEPT = "email.accept.after"
BEFORE_SENDING = "email.sending.before"
AFTER_SENDING = "email.sending.after"
BEFORE_OUTCOME = "email.outcome.before"
AFTER_OUTCOME = "email.outcome.after"

FAILPOINTS = (BEFORE_ACCEPT, AFTER_ACCEPT, BEFORE_SENDING, AFTER_SENDING, BEFORE_OUTCOME, AFTER_OUTCOME)
