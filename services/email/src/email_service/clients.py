"""Carries letters to an SMTP relay."""

import asyncio
import contextlib
import re
import ssl
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import unquote

import structlog
from aiosmtplib import SMTP, SMTPException, SMTPRecipientsRefused

from email_service.domain import Letter, MailNotSent, RecipientRefused
from email_service.mime import Sender, to_mime

log = structlog.get_logger()

MAX_CONNECTIONS = 20
TIMEOUT_SECONDS = 10.0

_URL = re.compile(
    r"(?P<scheme>smtps?)://((?P<user>[^:@/]+):(?P<password>[^:@/]+)@)?(?P<host>[A-Za-z0-9._-]+)(:(?P<port>[0-9]{1,5}))?/?"
)
_PORT, _SUBMISSION_PORT, _TLS_PORT = 25, 587, 465
_PERMANENT_FAILURE = 500


@dataclass(frozen=True, slots=True)
class Relay:
    """Where an SMTP relay listens, and who we are to it. TLS is there from the first byte, or else by STARTTLS."""

    host: str
    port: int
    tls: bool = False
    user: str | None = None
    password: str | None = field(default=None, repr=False)

    @property
    def start_tls(self) -> bool | None:
        """Required before a password, taken when offered (None) without one, pointless when TLS is there already."""
        if self.tls:
            return False
        return True if self.user else None


def parse_relay(url: str) -> Relay:
    """Read `smtp[s]://[user:password@]host[:port]`. Raises ValueError, which never quotes the URL.

    Without a port it is 465 for smtps, 587 with a user, 25 otherwise.
    """
    parts = _URL.fullmatch(url)
    if not parts:
        raise ValueError("must be smtp://host:port or smtps://host:port, perhaps with user:password@ before the host")
    tls, user = parts["scheme"] == "smtps", parts["user"]
    port = parts["port"] or (_TLS_PORT if tls else _SUBMISSION_PORT if user else _PORT)
    if not user:
        return Relay(parts["host"], int(port), tls)
    return Relay(parts["host"], int(port), tls, unquote(user), unquote(parts["password"]))


class SmtpMailer:
    """Hands letters to a relay. A password is only sent over TLS; certificates are checked.

    Args:
        relay: where to.
        sender: whom mails come from.
        tls: whom to trust; by default the system's authorities, or those of SSL_CERT_FILE.
        timeout_seconds: for one letter as a whole.
    """

    def __init__(
        self,
        relay: Relay,
        sender: Sender,
        *,
        tls: ssl.SSLContext | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        self._relay = relay
        self._sender = sender
        self._tls = tls or ssl.create_default_context()
        self._timeout_seconds = timeout_seconds
        # Relays turn away who opens too many connections, as a backlog after an outage would.
        self._connections = asyncio.Semaphore(MAX_CONNECTIONS)

    async def send(self, letter: Letter) -> None:
        """Return once the relay has taken the letter. Raises MailNotSent, RecipientRefused."""
        mail = to_mime(letter, self._sender, datetime.now(UTC))
        try:
            async with asyncio.timeout(self._timeout_seconds), self._connections:
                await self._deliver(letter.recipient, mail)
        except SMTPRecipientsRefused as error:
            raise _refusal(error) from None
        except (SMTPException, OSError, TimeoutError) as error:
            # Only type and code: a relay's words may quote the address.
            log.warning("mail not sent", error=type(error).__name__, code=getattr(error, "code", None))
            raise MailNotSent("the mail relay did not take the mail") from None

    async def _deliver(self, recipient: str, mail: bytes) -> None:
        client = self._client()
        try:
            await client.connect()
            await client.sendmail(self._sender.address, [recipient], mail)
            with contextlib.suppress(SMTPException):  # the mail is taken, whatever happens to the goodbye
                await client.quit()
        finally:
            client.close()

    def _client(self) -> SMTP:
        relay = self._relay
        return SMTP(
            hostname=relay.host,
            port=relay.port,
            username=relay.user,
            password=relay.password,
            use_tls=relay.tls,
            start_tls=relay.start_tls,
            tls_context=self._tls,
            timeout=None,  # one timeout for all steps together
        )


def _refusal(error: SMTPRecipientsRefused) -> MailNotSent | RecipientRefused:
    if all(refused.code >= _PERMANENT_FAILURE for refused in error.recipients):
        return RecipientRefused("the mail relay does not deliver to this address")
    return MailNotSent("the mail relay does not take mail for this address now")
