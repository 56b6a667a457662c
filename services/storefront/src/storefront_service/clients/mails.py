"""The confirmation e-mail of an order, as the email service records it."""

import email
import email.policy
from dataclasses import dataclass

from chassis.errors import NotFound
from shop_internal import mail_records_pb2
from shop_internal.mail_records_pb2_grpc import MailRecordsStub


@dataclass(frozen=True, slots=True)
class Mail:
    """An e-mail.

    Attributes:
        state: QUEUED, SENT or FAILED.
        text: the plain text; None once the message itself was deleted.
        html: the HTML part; None if there is none.
    """

    state: str
    sender: str = ""
    recipient: str = ""
    subject: str = ""
    text: str | None = None
    html: str | None = None


class MailsClient:
    def __init__(self, stub: MailRecordsStub) -> None:
        self._stub = stub

    async def find(self, order_id: str) -> Mail | None:
        """Return the e-mail of an order, None if there is none yet. Raise DomainError."""
        try:
            found = await self._stub.GetMail(mail_records_pb2.GetMailRequest(order_id=order_id))
        except NotFound:
            return None
        state = mail_records_pb2.MailState.Name(found.mail.state).removeprefix("MAIL_STATE_")
        return _parse(state, found.message) if found.message else Mail(state)


def _parse(state: str, message: str) -> Mail:
    parsed = email.message_from_string(message, policy=email.policy.default)
    text, html = parsed.get_body(("plain",)), parsed.get_body(("html",))
    return Mail(
        state,
        sender=str(parsed["from"] or ""),
        recipient=str(parsed["to"] or ""),
        subject=str(parsed["subject"] or ""),
        text=text.get_content() if text else "",
        html=html.get_content() if html else None,
    )
