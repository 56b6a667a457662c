"""The email service's failpoints: see `chassis.failpoints`.

At `sending`, the relay doesn't have the complete message yet. At `outcome`, the attempt to send it has ended.
"""

ACCEPT = tuple(f"shop.internal.Confirmations/AcceptConfirmations{suffix}" for suffix in ("", ".after"))
SENDING = ("email.sending.before", "email.sending.after")
OUTCOME = ("email.outcome.before", "email.outcome.after")
FAILPOINTS = ACCEPT + SENDING + OUTCOME
