"""Validates, renders and spools confirmations: one for EmailService, many for the internal service Confirmations."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from chassis.errors import REFUSALS, DomainError, FailedPrecondition
from chassis.failpoints import Failpoints
from chassis.sql.database import is_rejected
from chassis.values.email_addresses import require_email_address
from chassis.values.fields import require_present
from email_service.domain import ConfirmationEmail, MailNotSent, RecipientRefused
from email_service.failpoints import AFTER_ACCEPT, BEFORE_ACCEPT
from email_service.messages import MessageState, NewMessage, SpoolUnavailable
from email_service.mime import Sender, to_mime
from email_service.product_names import ProductNames
from email_service.rendering import ConfirmationTemplates
from email_service.spool.sql import Spool
from email_service.wire import order_from_wire
from shop import email_pb2


@dataclass(frozen=True)
class Acceptance:
    """Renders confirmations and stores them in the spool; `notify` is called after each batch."""

    templates: ConfirmationTemplates
    names: ProductNames
    spool: Spool
    sender: Sender
    failpoints: Failpoints
    notify: Callable[[], None] = lambda: None

    async def accept(self, requests: Sequence[email_pb2.SendOrderConfirmationRequest]) -> Mapping[int, DomainError]:
        """Return once all confirmations but the refused ones are on disk, after one flush.

        Return the errors of those that every retry would refuse as well, by index. Raise MailNotSent if the spool
        cannot be written, and FailedPrecondition if it rejects several together; then none is stored.
        """
        names = await self.names.current()
        emails: dict[int, ConfirmationEmail] = {}
        refused: dict[int, DomainError] = {}
        for index, request in enumerate(requests):
            try:
                emails[index] = self._render(request, names)
            except REFUSALS as error:
                refused[index] = error
        return refused | await self._store(emails) if emails else refused

    def _render(self, request: email_pb2.SendOrderConfirmationRequest, names: Mapping[str, str]) -> ConfirmationEmail:
        recipient = require_email_address(request.email, "email")
        require_present(request.HasField("order"), "order")
        return self.templates.render(recipient, order_from_wire(request.order), names)

    async def _store(self, emails: Mapping[int, ConfirmationEmail]) -> dict[int, DomainError]:
        now = datetime.now(UTC)
        messages = [
            NewMessage(email.message_id, email.recipient, to_mime(email, self.sender, now), email.digests)
            for email in emails.values()
        ]
        await self.failpoints.reach(BEFORE_ACCEPT)
        try:
            states = await self.spool.add(messages)
        except SpoolUnavailable as error:
            if len(messages) > 1 and is_rejected(error):
                # One of them may be the reason. After this kind of error checkout sends each by itself.
                raise FailedPrecondition("not stored together", reason=MailNotSent.default_reason) from error
            raise MailNotSent("the spool can't be written") from error
        self.notify()
        await self.failpoints.reach(AFTER_ACCEPT)
        return {
            index: RecipientRefused("the mail relay has refused this confirmation")
            for index, email in emails.items()
            if states[email.message_id] is MessageState.REFUSED
        }
