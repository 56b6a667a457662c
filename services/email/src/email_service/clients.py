"""Sends e-mails through an SMTP relay."""

import asyncio
import contextlib
import re
import ssl
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import unquote

import structlog
from aiosmtplib import SMTP, SMTPException, SMTPRecipientsRefused
from typing_extensions import override

from email_service.domain import ConfirmationEmail, Mailer, MailNotSent, RecipientRefused
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
    """Address and credentials of an SMTP relay. With `tls` the connection uses TLS from the first byte."""

    host: str
    port: int
    tls: bool = False
    user: str | None = None
    password: str | None = field(default=None, repr=False)

    @property
    def start_tls(self) -> bool | None:
        """Whether to use STARTTLS: required with credentials, otherwise if offered (None), never on top of TLS."""
        if self.tls:
            return False
        return True if self.user else None


def parse_relay(url: str) -> Relay:
    """Parse `smtp[s]://[user:password@]host[:port]`. Raise ValueError, which never quotes the URL.

    The default port is 465 for smtps, 587 with a user and 25 otherwise.
    """
    parts = _URL.fullmatch(url)
    if not parts:
        raise ValueError(
            "must be smtp://host:port or smtps://host:port, optionally with user:password@ before the host"
        )
    tls, user = parts["scheme"] == "smtps", parts["user"]
    port = parts["port"] or (_TLS_PORT if tls else _SUBMISSION_PORT if user else _PORT)
    if not user:
        return Relay(parts["host"], int(port), tls)
    return Relay(parts["host"], int(port), tls, unquote(user), unquote(parts["password"]))


class SmtpMailer(Mailer):
    """Sends e-mails to a relay. Sends a password only over TLS and verifies certificates.

    Args:
        relay: the relay.
        sender: used in the envelope and in the header From.
        tls: TLS settings; by default the system's certificate authorities, or those of SSL_CERT_FILE.
        timeout_seconds: limit for sending one e-mail, including waiting for a connection.
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
        # Relays reject clients with too many connections, which a backlog after an outage would open.
        self._connections = asyncio.Semaphore(MAX_CONNECTIONS)

    @override
    async def send(self, email: ConfirmationEmail) -> None:
        message = to_mime(email, self._sender, datetime.now(UTC))
        try:
            async with asyncio.timeout(self._timeout_seconds), self._connections:
                await self._deliver(email.recipient, message)
        except SMTPRecipientsRefused as error:
            raise _refusal(error) from None
        except (SMTPException, OSError, TimeoutError) as error:
            # Only type and code: the text of the relay may quote the address.
            log.warning("email not sent", error=type(error).__name__, code=getattr(error, "code", None))
            raise MailNotSent("the mail relay did not accept the e-mail") from None

    async def _deliver(self, recipient: str, message: bytes) -> None:
        client = self._client()
        try:
            await client.connect()
            await client.sendmail(self._sender.address, [recipient], message)
            with contextlib.suppress(SMTPException):  # the relay has accepted the e-mail already
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
    return MailNotSent("the mail relay temporarily does not accept mail for this address")
