"""The behaviour that all mailers share, then that of each one."""

import asyncio
import errno
import os
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

from email_service.clients import Relay, SmtpMailer, parse_relay
from email_service.domain import ConfirmationEmail, Mailer, MailNotSent, RecipientRefused
from email_service.mime import Sender
from email_service.store import Outbox

SENDER = Sender("Shop", "orders@shop.example")
EMAIL = ConfirmationEmail("o-1", "jane@example.com", "Your order o-1", "Hello €1\n.\n", "<p>Hello €1</p>\n")
CERTIFICATE = Path(__file__).parent / "localhost.pem"


@dataclass
class Inbox:
    """Handler of a relay: records e-mails; a response to RCPT or DATA other than 250 refuses them."""

    mails: list[bytes] = field(default_factory=list)
    envelopes: list[tuple[str | None, list[str]]] = field(default_factory=list)
    over_tls: list[bool] = field(default_factory=list)
    users: list[str] = field(default_factory=list)
    rcpt_response: str = "250 OK"
    data_response: str = "250 OK"
    stalled: bool = False

    async def handle_RCPT(
        self, _server: SMTP, _session: Session, envelope: Envelope, address: str, _options: list[str]
    ) -> str:
        envelope.rcpt_tos.append(address)
        return self.rcpt_response

    async def handle_DATA(self, server: SMTP, _session: Session, envelope: Envelope) -> str:
        if self.stalled:
            await asyncio.Event().wait()
        assert isinstance(envelope.content, bytes)
        self.mails.append(envelope.content)
        self.envelopes.append((envelope.mail_from, envelope.rcpt_tos))
        self.over_tls.append(server.transport is not None and server.transport.get_extra_info("ssl_object") is not None)
        return self.data_response

    def authenticate(self, _server: SMTP, _session: Session, _envelope: Envelope, _kind: str, data: Any) -> AuthResult:
        assert isinstance(data, LoginPassword)
        self.users.append(data.login.decode())
        return AuthResult(success=data.password == b"s3cret/@", handled=False)


def server_tls() -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(CERTIFICATE)
    return context


def client_tls() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=CERTIFICATE)


@asynccontextmanager
async def relay(inbox: Inbox, *, tls: ssl.SSLContext | None = None, **options: Any) -> AsyncIterator[int]:
    """Run an SMTP server on a free port; yields the port."""

    def connection() -> SMTP:
        return SMTP(inbox, hostname="relay", authenticator=inbox.authenticate, **options)

    server = await asyncio.get_running_loop().create_server(connection, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await server.wait_closed()


@dataclass
class Delivery:
    mailer: Mailer
    raw: Callable[[], list[bytes]]

    def mails(self) -> list[EmailMessage]:
        return [message_from_bytes(mail, policy=policy.default) for mail in self.raw()]


@pytest.fixture(params=["outbox", "smtp"])
async def delivery(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Delivery]:
    if request.param == "outbox":
        yield Delivery(Outbox(tmp_path, SENDER), lambda: [path.read_bytes() for path in tmp_path.glob("*.eml")])
        return
    inbox = Inbox()
    async with relay(inbox) as port:
        yield Delivery(SmtpMailer(Relay("127.0.0.1", port), SENDER), lambda: inbox.mails)


async def test_an_email_arrives_with_both_bodies(delivery: Delivery) -> None:
    await delivery.mailer.send(EMAIL)
    [mail] = delivery.mails()
    bodies = [part.get_content().replace("\r\n", "\n") for part in mail.iter_parts()]
    assert bodies == [EMAIL.text, EMAIL.html]


async def test_an_email_arrives_with_its_headers(delivery: Delivery) -> None:
    await delivery.mailer.send(EMAIL)
    [mail] = delivery.mails()
    assert (mail["From"], mail["To"]) == ("Shop <orders@shop.example>", "jane@example.com")
    assert (mail["Subject"], mail["Message-ID"]) == ("Your order o-1", "<o-1@shop>")
    assert mail["Date"].datetime


async def test_an_email_sent_again_has_the_same_message_id(delivery: Delivery) -> None:
    await delivery.mailer.send(EMAIL)
    await delivery.mailer.send(EMAIL)
    assert {mail["Message-ID"] for mail in delivery.mails()} == {"<o-1@shop>"}


async def test_emails_sent_concurrently_all_arrive(delivery: Delivery) -> None:
    emails = [ConfirmationEmail(f"o-{number}", "jane@example.com", "Hi", "text", "html") for number in range(50)]
    await asyncio.gather(*map(delivery.mailer.send, emails))
    assert {mail["Message-ID"] for mail in delivery.mails()} == {f"<{email.order_id}@shop>" for email in emails}


async def test_an_order_id_can_neither_escape_the_outbox_nor_add_a_header(delivery: Delivery, tmp_path: Path) -> None:
    await delivery.mailer.send(
        ConfirmationEmail("../escaped\r\nBcc: all@example.com", "jane@example.com", "Hi", "text", "html")
    )
    [mail] = delivery.mails()
    assert mail["Bcc"] is None
    assert not any("escaped" in name for name in files(tmp_path.parent))


def files(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


async def test_the_outbox_has_one_file_per_order(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "new" / "folder", SENDER)
    await outbox.send(EMAIL)
    await outbox.send(EMAIL)
    assert files(tmp_path / "new" / "folder") == ["o-1.eml"]


async def test_concurrent_emails_share_a_flush_of_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[int] = []
    flush = os.fsync

    def record_flush(descriptor: int) -> None:
        flushed.append(descriptor)
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", record_flush)
    outbox = Outbox(tmp_path, SENDER)
    emails = [ConfirmationEmail(f"o-{number}", "jane@example.com", "Hi", "text", "html") for number in range(50)]
    await asyncio.gather(*map(outbox.send, emails))
    await outbox.close()
    assert len(files(tmp_path)) == 50
    assert len(flushed) < 60


async def test_a_full_disk_is_unavailable_and_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(MailNotSent):
        await Outbox(tmp_path, SENDER).send(EMAIL)
    assert not files(tmp_path)


async def test_a_deleted_outbox_is_unavailable(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "outbox", SENDER)
    (tmp_path / "outbox").rmdir()
    with pytest.raises(MailNotSent):
        await outbox.send(EMAIL)


async def test_the_envelope_contains_plain_addresses() -> None:
    inbox = Inbox()
    async with relay(inbox) as port:
        await SmtpMailer(Relay("127.0.0.1", port), SENDER).send(EMAIL)
    assert inbox.envelopes == [("orders@shop.example", ["jane@example.com"])]


async def test_the_longest_address_arrives_whole() -> None:
    inbox, longest = Inbox(), "a" * 242 + "@example.com"
    async with relay(inbox) as port:
        await SmtpMailer(Relay("127.0.0.1", port), SENDER).send(ConfirmationEmail("o-1", longest, "Hi", "text", "html"))
    assert inbox.envelopes[0][1] == [longest]


async def test_smtps_uses_tls_from_the_first_byte() -> None:
    inbox = Inbox()
    async with relay(inbox, tls=server_tls()) as port:
        await SmtpMailer(Relay("127.0.0.1", port, tls=True), SENDER, tls=client_tls()).send(EMAIL)
    assert inbox.over_tls == [True]


async def test_starttls_is_used_when_the_relay_offers_it() -> None:
    inbox = Inbox()
    async with relay(inbox, tls_context=server_tls()) as port:
        await SmtpMailer(Relay("127.0.0.1", port), SENDER, tls=client_tls()).send(EMAIL)
    assert inbox.over_tls == [True]


@pytest.mark.parametrize("options", [{"tls": server_tls()}, {"tls_context": server_tls()}], ids=["smtps", "starttls"])
async def test_an_untrusted_certificate_is_rejected(options: dict[str, ssl.SSLContext]) -> None:
    inbox = Inbox()
    async with relay(inbox, **options) as port:
        with pytest.raises(MailNotSent):
            await SmtpMailer(Relay("127.0.0.1", port, tls="tls" in options), SENDER).send(EMAIL)
    assert not inbox.mails


async def test_a_user_logs_in_over_starttls() -> None:
    inbox = Inbox()
    async with relay(inbox, tls_context=server_tls(), auth_required=True) as port:
        target = parse_relay(f"smtp://jane:s3cret%2F%40@127.0.0.1:{port}")
        await SmtpMailer(target, SENDER, tls=client_tls()).send(EMAIL)
    assert (inbox.users, inbox.over_tls) == (["jane"], [True])


async def test_a_wrong_password_is_unavailable_and_not_revealed() -> None:
    inbox = Inbox()
    async with relay(inbox, tls_context=server_tls(), auth_required=True) as port:
        target = Relay("127.0.0.1", port, user="jane", password="wrong")
        with pytest.raises(MailNotSent) as refused:
            await SmtpMailer(target, SENDER, tls=client_tls()).send(EMAIL)
    assert "wrong" not in str(refused.value) + repr(target)
    assert not inbox.mails


async def test_a_password_is_never_sent_without_tls() -> None:
    inbox = Inbox()
    async with relay(inbox, auth_require_tls=False) as port:
        with pytest.raises(MailNotSent):
            await SmtpMailer(Relay("127.0.0.1", port, user="jane", password="s3cret/@"), SENDER).send(EMAIL)
    assert not inbox.users


async def test_a_permanently_refused_recipient_has_its_own_error() -> None:
    async with relay(Inbox(rcpt_response="550 no such user")) as port:
        with pytest.raises(RecipientRefused):
            await SmtpMailer(Relay("127.0.0.1", port), SENDER).send(EMAIL)


@pytest.mark.parametrize(
    "inbox",
    [Inbox(rcpt_response="450 greylisted"), Inbox(data_response="451 disk full"), Inbox(data_response="554 no")],
    ids=["rcpt 450", "data 451", "data 554"],
)
async def test_any_other_refusal_is_unavailable(inbox: Inbox) -> None:
    async with relay(inbox) as port:
        with pytest.raises(MailNotSent):
            await SmtpMailer(Relay("127.0.0.1", port), SENDER).send(EMAIL)


async def test_a_relay_that_is_down_is_unavailable() -> None:
    async with relay(Inbox()) as port:
        pass
    with pytest.raises(MailNotSent):
        await SmtpMailer(Relay("127.0.0.1", port), SENDER).send(EMAIL)


async def test_a_stalled_relay_is_abandoned_at_the_timeout() -> None:
    async with relay(Inbox(stalled=True)) as port:
        with pytest.raises(MailNotSent):
            await SmtpMailer(Relay("127.0.0.1", port), SENDER, timeout_seconds=0.2).send(EMAIL)


async def test_neither_the_relay_s_text_nor_the_address_is_logged(capsys: pytest.CaptureFixture[str]) -> None:
    async with relay(Inbox(rcpt_response="450 jane@example.com is greylisted")) as port:
        with pytest.raises(MailNotSent) as refused:
            await SmtpMailer(Relay("127.0.0.1", port), SENDER).send(EMAIL)
    async with relay(Inbox(data_response="451 jane@example.com is over quota")) as port:
        with pytest.raises(MailNotSent):
            await SmtpMailer(Relay("127.0.0.1", port), SENDER).send(EMAIL)
    output = capsys.readouterr().out
    assert "email not sent" in output
    assert "jane" not in output + str(refused.value)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("smtp://relay", Relay("relay", 25)),
        ("smtp://relay:2525", Relay("relay", 2525)),
        ("smtps://relay/", Relay("relay", 465, tls=True)),
        ("smtp://jane:pass@relay", Relay("relay", 587, user="jane", password="pass")),
        ("smtps://jane%40shop:p%3A@relay:1", Relay("relay", 1, tls=True, user="jane@shop", password="p:")),
    ],
)
def test_a_relay_is_parsed_from_its_url(url: str, expected: Relay) -> None:
    assert parse_relay(url) == expected


@pytest.mark.parametrize(
    "url",
    [
        "",
        "relay",
        "http://relay",
        "smtp://",
        "smtp://:25",
        "smtp://jane@relay",
        "smtp://jane:pa/ss@relay",
        "smtp://r:x",
    ],
)
def test_a_malformed_url_is_rejected_without_quoting_it(url: str) -> None:
    with pytest.raises(ValueError, match="must be smtp://") as refused:
        parse_relay(url)
    assert "jane" not in str(refused.value)
