"""Reads the confirmations of orders from the email service."""

import email
import email.policy
from dataclasses import dataclass

from chassis.errors import NotFound
from shop_internal import mail_records_pb2
from shop_internal.mail_records_pb2_grpc import MailRecordsStub


@dataclass(frozen=True, slots=True)
class Confirmation:
    """The e-mail that confirms an order, without a text once the email service has deleted that.

    Attributes:
        state: QUEUED, SENT or FAILED.
    """

    state: str
    sender: str = ""
    recipient: str = ""
    subject: str = ""
    text: str | None = None
    html: str | None = None


class ConfirmationsClient:
    def __init__(self, stub: MailRecordsStub) -> None:
        self._stub = stub

    async def find(self, order_id: str) -> Confirmation | None:
        """Return the confirmation of an order, or None if there is none yet. Raise DomainError."""
        try:
            found = await self._stub.GetMail(mail_records_pb2.GetMailRequest(order_id=order_id))
        except NotFound:
            return None
        state = mail_records_pb2.MailState.Name(found.mail.state).removeprefix("MAIL_STATE_")
        return _parse(state, found.message) if found.message else Confirmation(state)


def _parse(state: str, message: str) -> Confirmation:
    parsed = email.message_from_string(message, policy=email.policy.default)
    text, html = parsed.get_body(("plain",)), parsed.get_body(("html",))
    return Confirmation(
        state,
        sender=str(parsed["from"] or ""),
        recipient=str(parsed["to"] or ""),
        subject=str(parsed["subject"] or ""),
        text=text.get_content() if text else "",
        html=html.get_content() if html else None,
    )
