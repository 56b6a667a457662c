"""Accepts e-mails into the spool."""

import time
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime

from typing_extensions import override

from email_service.domain import (
    ConfirmationEmail,
    Mailer,
    MailIndex,
    MailNotSent,
    MailRecord,
    MailState,
    StoredMail,
    key_of,
)
from email_service.letters import RETENTION_SECONDS, LetterState, NewLetter, Spool, SpoolUnavailable
from email_service.mime import Sender, to_mime

_STATES = {
    LetterState.QUEUED: MailState.QUEUED,
    LetterState.SENDING: MailState.QUEUED,
    LetterState.SENT: MailState.SENT,
    LetterState.IN_DOUBT: MailState.FAILED,
    LetterState.REFUSED: MailState.FAILED,
}


class SpooledMailer(Mailer, MailIndex):
    """Stores e-mails in the spool; `notify` is called after each batch."""

    def __init__(self, spool: Spool, sender: Sender, notify: Callable[[], None]) -> None:
        self._spool = spool
        self._sender = sender
        self._notify = notify

    @override
    async def accept(self, emails: Sequence[ConfirmationEmail]) -> Collection[str]:
        now = datetime.now(UTC)
        letters = [NewLetter(email.key, email.recipient, to_mime(email, self._sender, now)) for email in emails]
        try:
            states = await self._spool.add(letters)
        except SpoolUnavailable as error:
            raise MailNotSent("the spool can't be written") from error
        self._notify()
        return {email.order_id for email in emails if states[email.key] is LetterState.REFUSED}

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
