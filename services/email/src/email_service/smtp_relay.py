import asyncio
import contextlib
import re
import ssl
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from urllib.parse import unquote

from aiosmtplib import (
    SMTP,
    SMTPDataError,
    SMTPException,
    SMTPRecipientRefused,
    SMTPResponseException,
    SMTPServerDisconnected,
)
from aiosmtplib.protocol import SMTPProtocol
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode

from chassis.telemetry import semconv
from chassis.telemetry.instruments import Telemetry
from email_service.messages import NO_RESPONSE, Attempt, ClaimedMessage, Outcome

_URL = re.compile(
    r"(?P<scheme>smtps?)://((?P<user>[^:/]+):(?P<password>\S+)@)?(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:(?P<port>[0-9]{1,5}))?/?"
)
_PORT, _SUBMISSION_PORT, _TLS_PORT = 25, 587, 465
_START_INPUT, _SERVICE_NOT_AVAILABLE, _PERMANENT_FAILURE = 354, 421, 500
_FULL, _NO_MAILBOX = 552, frozenset({550, 551, 552, 553})  # mailbox unknown, not local, full, or name not allowed
# Words by which a relay, without an enhanced status, refuses the sender or us rather than the mailbox.
_POLICY = re.compile(
    r"(?i)relay|auth|sender|helo|rcpthosts|denied|permit|allowed to|prohibit|polic|block|black|spam|reputation|5\.7\."
)
_ADDRESS = re.compile(r"\S+@\S+")
# Enhanced statuses of the recipient's address (5.1) or mailbox (5.2). 5.1.0, 5.1.7 and 5.1.8 may be about the sender.
_BAD_RECIPIENT, _ENHANCED = re.compile(r"5\.(1\.(?![078]\b)|2\.)\d"), re.compile(r"\d\.\d+\.\d")
_LEADING_DOT = re.compile(rb"^\.", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Relay:
    """An SMTP relay's address and credentials. With `tls`, the connection uses TLS from the first byte."""

    host: str
    port: int
    tls: bool = False
    user: str | None = None
    password: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class SmtpRelay:
    """Hands messages to an SMTP relay, opening one connection per message. Sends passwords only over TLS.

    Attributes:
        sender: the envelope sender.
        tls: the TLS context; by default, it trusts the system's certificate authorities or those in SSL_CERT_FILE.
        reach_seconds: the timeout for connecting and for sending everything but the end of the message.
        response_seconds: how long to wait for the final response; relays may deliver before responding (RFC 5321).
    """

    relay: Relay
    sender: str
    telemetry: Telemetry = field(default_factory=Telemetry)
    tls: ssl.SSLContext = field(default_factory=ssl.create_default_context)
    reach_seconds: float = 60.0
    response_seconds: float = 600.0

    async def send(self, message: ClaimedMessage, begin_sending: Callable[[], Awaitable[bool]]) -> Attempt:
        """Hand a message to the relay.

        Await `begin_sending` before ending the message, because the relay may deliver the message as soon as it ends.
        If `begin_sending` returns False, abandon the message. Errors from `begin_sending` propagate.
        """
        attributes: dict[str, str | int] = {
            semconv.SERVER_ADDRESS: self.relay.host,
            semconv.SERVER_PORT: self.relay.port,
        }
        span = self.telemetry.tracer.start_span("SMTP send", None, SpanKind.CLIENT, attributes)
        started, problem = time.perf_counter(), ""
        try:
            # Don't let the SDK record errors: their text may quote an e-mail address.
            with trace.use_span(span, record_exception=False, set_status_on_exception=False):
                attempt = await self._send(message, begin_sending)
            problem = attempt.reason
        except BaseException as error:
            problem = type(error).__name__
            raise
        else:
            return attempt
        finally:
            labels = ((semconv.ERROR_TYPE, problem),) if problem else ()
            if problem:
                span.set_attributes(dict(labels))
                span.set_status(StatusCode.ERROR)
            span.end()
            durations = self.telemetry.histogram(semconv.SMTP_CLIENT_DURATION)
            durations.record(time.perf_counter() - started, labels, span)

    async def _send(self, message: ClaimedMessage, begin_sending: Callable[[], Awaitable[bool]]) -> Attempt:
        client = self._client()
        try:
            async with asyncio.timeout(self.reach_seconds):
                await self._write(client, message)
                if not await begin_sending():
                    return Attempt(Outcome.CLAIM_LOST)
            if not client.is_connected:
                return Attempt(Outcome.NOT_SENT, "DISCONNECTED")
            return await self._end_message(client)
        except SMTPRecipientRefused as error:
            return _recipient_refusal(error.code, error.message)
        except SMTPDataError as error:
            return _refusal(error.code)
        except (SMTPException, OSError, TimeoutError) as error:
            # Return only the code or the error's type, because the relay's text may quote the e-mail address.
            code = getattr(error, "code", None)
            return Attempt(Outcome.NOT_SENT, f"RELAY_{code}" if code else type(error).__name__)
        finally:
            client.close()

    async def _write(self, client: SMTP, message: ClaimedMessage) -> None:
        """Send all but the end of the message. If the connection closes early, the relay discards the message."""
        await client.connect()
        await _accepted(client.mail(self.sender))
        await _accepted(client.rcpt(message.recipient))
        response = await client.execute_command(b"DATA")
        if response.code != _START_INPUT:
            raise SMTPDataError(response.code, response.message)
        _protocol(client).write(_LEADING_DOT.sub(b"..", message.content))

    async def _end_message(self, client: SMTP) -> Attempt:
        try:
            async with asyncio.timeout(self.response_seconds):
                response = await client.execute_command(b".")
        except (SMTPException, OSError, TimeoutError):
            return Attempt(Outcome.IN_DOUBT, NO_RESPONSE)
        if not _is_success(response.code):
            return _refusal(response.code)
        with contextlib.suppress(SMTPException):
            _protocol(client).write(b"QUIT\r\n")  # don't wait for a response: the relay already has the message
        return Attempt(Outcome.SENT)

    def _client(self) -> SMTP:
        relay = self.relay
        return SMTP(
            hostname=relay.host,
            port=relay.port,
            local_hostname=self.sender.rpartition("@")[2],  # relays refuse a pod's host name, which has no domain
            username=relay.user,
            password=relay.password,
            use_tls=relay.tls,
            start_tls=True if relay.user and not relay.tls else None,  # None: use STARTTLS if the relay offers it
            tls_context=self.tls,
            timeout=None,  # disabled: `reach_seconds` and `response_seconds` apply instead
        )


def _protocol(client: SMTP) -> SMTPProtocol:
    if client.protocol is None:
        raise SMTPServerDisconnected("the connection is closed")
    return client.protocol


async def _accepted(command: Awaitable[object]) -> None:
    """Await a command. Accept every success code, including those that aiosmtplib treats as errors."""
    try:
        await command
    except SMTPResponseException as error:
        if not _is_success(error.code):
            raise


def _is_success(code: int) -> bool:
    return code // 100 == 2  # noqa: PLR2004 - 2 as the first digit means success (RFC 5321, section 4.2.1)


def _refusal(code: int) -> Attempt:
    if code == _SERVICE_NOT_AVAILABLE:
        return Attempt(Outcome.NOT_SENT, f"RELAY_{code}")
    return Attempt(Outcome.REFUSED if code >= _PERMANENT_FAILURE else Outcome.DEFERRED, f"RELAY_{code}")


def _recipient_refusal(code: int, text: str) -> Attempt:
    """Return UNDELIVERABLE only if the mailbox is refused: a misconfigured relay may refuse every recipient."""
    if code == _FULL and "too many" in text.lower():  # temporary (RFC 5321, section 4.5.3.1.10)
        return Attempt(Outcome.DEFERRED, f"RELAY_{code}")
    is_plain = code in _NO_MAILBOX and not _ENHANCED.match(text) and not _POLICY.search(_ADDRESS.sub("", text))
    is_bad = is_plain or (code >= _PERMANENT_FAILURE and _BAD_RECIPIENT.match(text))
    return Attempt(Outcome.UNDELIVERABLE, f"RELAY_{code}") if is_bad else _refusal(code)


def parse_relay(url: str) -> Relay:
    """Parse `smtp[s]://[user:password@]host[:port]`. Raise ValueError, without the URL's text, if it is malformed.

    The user may be an e-mail address, because the host begins after the last @. Percent-encode any % and, in the user,
    any colon or slash. The default port is 465 for smtps, 587 with a user and 25 otherwise.
    """
    parts = _URL.fullmatch(url)
    if not parts:
        raise ValueError(
            "must be smtp://host:port or smtps://host:port, optionally with user:password@ before the host"
        )
    tls, user, host = parts["scheme"] == "smtps", parts["user"], parts["host"].strip("[]")
    port = parts["port"] or (_TLS_PORT if tls else _SUBMISSION_PORT if user else _PORT)
    if not user:
        return Relay(host, int(port), tls)
    return Relay(host, int(port), tls, unquote(user), unquote(parts["password"]))
