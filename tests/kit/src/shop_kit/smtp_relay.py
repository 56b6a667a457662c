"""An SMTP relay on loopback, which records the mails that it accepts and can be slow, refuse or hang up.

`tests/lab/e2e/mail_relay.py` is another one: it runs in an image of the shop, which has no aiosmtpd.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any, Literal, cast

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

from shop_kit.waiting import close_listener

RelayMode = Literal["accept", "slow", "defer", "hang up"]
_SLOW_SECONDS = 3.0


@dataclass
class Inbox:
    """Handler of a relay. A response to RCPT or DATA that does not begin with 2 refuses the mail.

    Attributes:
        greetings: the names in EHLO.
        mails: accepted ones, with envelopes and the use of TLS in the same order.
        received: the number of mails that arrived whole, accepted or not.
        data_responses: to the first mails; `data_response` is for all others.
        before_response: awaited when a mail has arrived whole, before it is accepted.
        mode: `slow` responds after three seconds, `defer` refuses temporarily, and `hang up` accepts mails, but closes
            the connection instead of responding.
    """

    greetings: list[str | None] = field(default_factory=list)
    mails: list[bytes] = field(default_factory=list)
    envelopes: list[tuple[str | None, list[str]]] = field(default_factory=list)
    over_tls: list[bool] = field(default_factory=list)
    users: list[str] = field(default_factory=list)
    received: int = 0
    mail_response: str = "250 OK"
    rcpt_response: str = "250 OK"
    data_response: str = "250 OK"
    data_responses: list[str] = field(default_factory=list)
    before_response: Callable[[], Awaitable[object]] | None = None
    mode: RelayMode = "accept"

    async def handle_MAIL(
        self, _server: SMTP, session: Session, envelope: Envelope, address: str, _options: list[str]
    ) -> str:
        self.greetings.append(session.host_name)
        envelope.mail_from = address
        return self.mail_response

    async def handle_RCPT(
        self, _server: SMTP, _session: Session, envelope: Envelope, address: str, _options: list[str]
    ) -> str:
        envelope.rcpt_tos.append(address)
        return self.rcpt_response

    async def handle_DATA(self, server: SMTP, _session: Session, envelope: Envelope) -> str:
        content = cast("bytes", envelope.content)
        self.received += 1
        if self.before_response is not None:
            await self.before_response()
        if self.mode == "slow":
            await asyncio.sleep(_SLOW_SECONDS)
        response = self.data_responses.pop(0) if self.data_responses else self.data_response
        if self.mode == "defer":
            response = "451 try again later"
        if response.startswith("2"):
            self.mails.append(content)
            self.envelopes.append((envelope.mail_from, envelope.rcpt_tos))
            transport = server.transport
            self.over_tls.append(transport is not None and transport.get_extra_info("ssl_object") is not None)
        if self.mode == "hang up" and server.transport is not None:
            server.transport.close()
        return response

    def authenticate(self, _server: SMTP, _session: Session, _envelope: Envelope, _kind: str, data: Any) -> AuthResult:
        """Accept the password `s3cret/@`."""
        given = cast("LoginPassword", data)
        self.users.append(given.login.decode())
        return AuthResult(success=given.password == b"s3cret/@", handled=False)

    def messages(self) -> list[EmailMessage]:
        """Return the accepted mails, decoded."""
        return [message_from_bytes(mail, policy=policy.default) for mail in self.mails]

    def message_ids(self) -> list[str]:
        """Return the Message-IDs of the accepted mails, sorted."""
        return sorted(str(message["Message-ID"]) for message in self.messages())


@asynccontextmanager
async def relay(
    inbox: Inbox, *, port: int = 0, tls: ssl.SSLContext | None = None, **options: Any
) -> AsyncIterator[int]:
    """Run an SMTP server on loopback, by default on a free port; yield the port. Close its connections on exit."""
    connections: list[SMTP] = []

    def connection() -> SMTP:
        connections.append(SMTP(inbox, hostname="relay", authenticator=inbox.authenticate, **options))
        return connections[-1]

    server = await asyncio.get_running_loop().create_server(connection, "127.0.0.1", port, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        await close_listener(server)
        for open_connection in connections:
            if open_connection.transport is not None:
                with suppress(AttributeError):  # Python 3.11.2 can't abort a TLS connection that was closed twice
                    cast("asyncio.Transport", open_connection.transport).abort()
        await asyncio.sleep(0)  # the transports close their sockets in the next turn of the loop
