"""Validates, renders and stores confirmations: one for EmailService, many for the internal service Confirmations."""

from collections.abc import Mapping, Sequence

from chassis.errors import REFUSALS, DomainError
from chassis.failpoints import Failpoints
from chassis.values.fields import require_email_address, require_present
from email_service.domain import ConfirmationEmail, Mailer, ProductNames, RecipientRefused
from email_service.failpoints import AFTER_ACCEPT, BEFORE_ACCEPT
from email_service.rendering import ConfirmationTemplates
from email_service.wire import order_from_wire
from shop import email_pb2


class Acceptance:
    """Renders confirmations, which a mailer accepts for delivery."""

    def __init__(
        self, templates: ConfirmationTemplates, names: ProductNames, mailer: Mailer, failpoints: Failpoints
    ) -> None:
        self._templates = templates
        self._names = names
        self._mailer = mailer
        self._failpoints = failpoints

    async def accept(self, requests: Sequence[email_pb2.SendOrderConfirmationRequest]) -> Mapping[int, DomainError]:
        """Return once all e-mails but the refused ones are on disk.

        Return the errors of those that would be refused however often they were sent, by their index. Raise MailNotSent
        if the e-mails could not be stored; then all of them can be sent again.
        """
        names = await self._names.current()
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
        return self._templates.render(recipient, order_from_wire(request.order), names)

    async def _store(self, emails: Mapping[int, ConfirmationEmail]) -> dict[int, DomainError]:
        await self._failpoints.reach(BEFORE_ACCEPT)
        refused = await self._mailer.accept([*emails.values()])
        await self._failpoints.reach(AFTER_ACCEPT)
        return {
            index: RecipientRefused("the mail relay has refused this e-mail")
            for index, email in emails.items()
            if email.order_id in refused
        }
