"""Reads order confirmations from the email service."""

from dataclasses import dataclass
from email import message_from_string, policy
from email.message import EmailMessage

from chassis.errors import NotFound
from shop_internal import mail_records_pb2
from shop_internal.mail_records_pb2_grpc import MailRecordsStub


@dataclass(frozen=True, slots=True)
class Confirmation:
    """An order's confirmation e-mail. `state` is a `MailState` without its prefix. `message` is None once sent."""

    state: str
    message: EmailMessage | None

    def body(self, subtype: str) -> str | None:
        """Return the `plain` or `html` body, or None if the message has no such body."""
        part = None if self.message is None else self.message.get_body((subtype,))
        return None if part is None else str(part.get_content())


class ConfirmationsClient:
    def __init__(self, stub: MailRecordsStub) -> None:
        self._stub = stub

    async def find(self, order_id: str) -> Confirmation | None:
        """Return an order's confirmation; None if there is none yet. Raise DomainError if the email service fails."""
        try:
            found = await self._stub.GetMail(mail_records_pb2.GetMailRequest(order_id=order_id))
        except NotFound:
            return None
        state = mail_records_pb2.MailState.Name(found.mail.state).removeprefix("MAIL_STATE_")
        return Confirmation(state, message_from_string(found.message, policy=policy.default) if found.message else None)
