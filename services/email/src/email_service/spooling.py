"""Accepts e-mails into the spool."""

import time
from collections.abc import Callable
from datetime import UTC, datetime

from typing_extensions import override

from email_service.domain import (
    ConfirmationEmail,
    Mailer,
    MailIndex,
    MailNotSent,
    MailRecord,
    MailState,
    RecipientRefused,
    StoredMail,
    key_of,
)
from email_service.letters import RETENTION_SECONDS, LetterState, Spool, SpoolUnavailable
from email_service.mime import Sender, to_mime

_STATES = {
    LetterState.QUEUED: MailState.QUEUED,
    LetterState.SENDING: MailState.QUEUED,
    LetterState.SENT: MailState.SENT,
    LetterState.IN_DOUBT: MailState.FAILED,
    LetterState.REFUSED: MailState.FAILED,
}


class SpooledMailer(Mailer, MailIndex):
    """Stores e-mails in the spool; `notify` is called after each."""

    def __init__(self, spool: Spool, sender: Sender, notify: Callable[[], None]) -> None:
        self._spool = spool
        self._sender = sender
        self._notify = notify

    @override
    async def accept(self, email: ConfirmationEmail) -> None:
        message = to_mime(email, self._sender, datetime.now(UTC))
        try:
            state = await self._spool.add(email.key, email.recipient, message)
        except SpoolUnavailable as error:
            raise MailNotSent("the spool can't be written") from error
        if state is LetterState.REFUSED:
            raise RecipientRefused("the mail relay has refused this e-mail")
        self._notify()

    @override
    async def find(self, order_id: str) -> MailRecord | None:
        found = await self.read(order_id)
        return None if found is None else found.record

    @override
    async def read(self, order_id: str) -> StoredMail | None:
        letter = await self._spool.read(key_of(order_id))
        if letter is None:
            return None
        return StoredMail(MailRecord(_STATES[letter.state], letter.reason), letter.message)

    @property
    @override
    def complete_since(self) -> float:
        return time.time() - RETENTION_SECONDS
