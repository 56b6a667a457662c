"""Tests of what a real SMTP server receives, and of how the client interprets the responses."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.trace import SpanKind, StatusCode

from chassis.telemetry import semconv
from email_service.messages import Attempt, ClaimedMessage, Outcome
from email_service.smtp_relay import Relay, SmtpRelay, parse_relay
from shop_kit.serving import Recorded
from shop_kit.smtp_relay import Inbox, relay
from shop_kit.waiting import listening

TEXT = b"Message-ID: <o-1@shop>\r\n\r\nHello\r\n.\r\n..\r\n"
MESSAGE = ClaimedMessage("o-1", "jane@example.com", TEXT, attempt=1, deferrals=0)
CERTIFICATE = Path(__file__).parent / "localhost.pem"


def server_tls() -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(CERTIFICATE)
    return context


def client_tls() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=CERTIFICATE)


async def succeed() -> bool:
    return True


async def send(
    target: Relay | int,
    message: ClaimedMessage = MESSAGE,
    begin_sending: Callable[[], Awaitable[bool]] = succeed,
    **options: Any,
) -> Attempt:
    """Send a message to a relay, or to the relay on this local port."""
    relay_url = target if isinstance(target, Relay) else Relay("127.0.0.1", target)
    return await SmtpRelay(relay_url, "orders@shop.example", **options).send(message, begin_sending)


@pytest.mark.parametrize("recipient", ["jane@example.com", "a" * 242 + "@example.com"], ids=["short", "longest"])
async def test_message_and_addresses_arrive_unchanged(recipient: str) -> None:
    async with relay(inbox := Inbox()) as port:
        assert await send(port, replace(MESSAGE, recipient=recipient)) == Attempt(Outcome.SENT)
    assert inbox.envelopes == [("orders@shop.example", [recipient])]
    assert (inbox.mails, inbox.greetings) == ([TEXT], ["shop.example"])


async def test_a_message_whose_claim_was_lost_is_not_delivered() -> None:
    async def lose_claim() -> bool:
        return False

    async with relay(inbox := Inbox()) as port:
        assert await send(port, begin_sending=lose_claim) == Attempt(Outcome.CLAIM_LOST)
    assert inbox.received == 0


@pytest.mark.parametrize("options", [{"tls": server_tls()}, {"tls_context": server_tls()}], ids=["smtps", "starttls"])
async def test_tls_is_used_whenever_the_relay_offers_it_and_certificates_are_verified(options: dict[str, Any]) -> None:
    async with relay(inbox := Inbox(), **options) as port:
        target = Relay("127.0.0.1", port, tls="tls" in options)
        assert (await send(target)).outcome is Outcome.NOT_SENT
        assert inbox.received == 0
        await send(target, tls=client_tls())
    assert inbox.over_tls == [True]


async def test_a_user_logs_in_over_starttls() -> None:
    async with relay(inbox := Inbox(), tls_context=server_tls(), auth_required=True) as port:
        await send(parse_relay(f"smtp://jane:s3cret%2F%40@127.0.0.1:{port}"), tls=client_tls())
    assert (inbox.users, inbox.over_tls) == (["jane"], [True])


async def test_a_wrong_password_is_a_failure_of_the_relay_and_not_revealed() -> None:
    async with relay(inbox := Inbox(), tls_context=server_tls(), auth_required=True) as port:
        target = Relay("127.0.0.1", port, user="jane", password="wrong")
        assert await send(target, tls=client_tls()) == Attempt(Outcome.NOT_SENT, "RELAY_535")
    assert "wrong" not in repr(target)
    assert inbox.received == 0


async def test_a_password_is_never_sent_without_tls() -> None:
    async with relay(inbox := Inbox(), auth_require_tls=False) as port:
        target = Relay("127.0.0.1", port, user="jane", password="s3cret/@")
        assert (await send(target)).outcome is Outcome.NOT_SENT
    assert not inbox.users


RESPONSES = {
    "sender 550": (Inbox(mail_response="550 unknown sender"), Attempt(Outcome.NOT_SENT, "RELAY_550")),
    **{
        f"rcpt {text}": (Inbox(rcpt_response=text), Attempt(outcome, f"RELAY_{text[:3]}"))
        for outcome, texts in (
            (Outcome.UNDELIVERABLE, "550-5.1.1 no such\r\n550 5.1.1 user/550 5.1.10 unknown/552 5.2.2 mailbox full"),
            (Outcome.UNDELIVERABLE, "550 no such user/553 mailbox name not allowed/550 <policy@x>: unknown/552 full"),
            (Outcome.REFUSED, "550-Unrouteable address\r\n550 Sender verify failed/550 Administrative prohibition"),
            (Outcome.REFUSED, "550 relay not permitted/550-relaying denied\r\n550 5.1.1 no/553 not listed (#5.7.1)"),
            (Outcome.REFUSED, "550 5.7.1 relaying denied/550 5.1.8 unknown sender/554 denied"),
            (Outcome.DEFERRED, "552 5.5.3 too many/450 5.1.1 greylisted"),
            (Outcome.NOT_SENT, "421 shutting down"),
        )
        for text in texts.split("/")
    },
    "rcpt 252": (Inbox(mail_response="253 fine", rcpt_response="252 not verified"), Attempt(Outcome.SENT)),
    "data 252": (Inbox(data_response="252 will try to deliver"), Attempt(Outcome.SENT)),
    "data 451": (Inbox(data_response="451 disk full"), Attempt(Outcome.DEFERRED, "RELAY_451")),
    "data 421": (Inbox(data_response="421 shutting down"), Attempt(Outcome.NOT_SENT, "RELAY_421")),
    "data 554": (Inbox(data_response="554 no"), Attempt(Outcome.REFUSED, "RELAY_554")),
    "hangs up": (Inbox(mode="hang up"), Attempt(Outcome.IN_DOUBT, "NO_RESPONSE")),
}


@pytest.mark.parametrize(("inbox", "expected"), RESPONSES.values(), ids=list(RESPONSES))
async def test_a_response_decides_whether_a_message_is_sent_again(inbox: Inbox, expected: Attempt) -> None:
    async with relay(inbox) as port:
        assert await send(port) == expected


async def test_a_relay_that_does_not_respond_in_time_leaves_the_message_in_doubt() -> None:
    async with relay(Inbox(before_response=asyncio.Event().wait)) as port:
        assert await send(port, response_seconds=0.2) == Attempt(Outcome.IN_DOUBT, "NO_RESPONSE")


async def test_a_relay_that_does_not_greet_in_time_has_not_got_the_message() -> None:
    closed = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        await writer.wait_closed()
        closed.set()

    async with listening(hang) as port:
        assert await send(port, reach_seconds=0.2) == Attempt(Outcome.NOT_SENT, "TimeoutError")
        await closed.wait()


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("smtp://relay", Relay("relay", 25)),
        ("smtp://relay:2525", Relay("relay", 2525)),
        ("smtp://[2001:db8::1]:2525", Relay("2001:db8::1", 2525)),
        ("smtps://relay/", Relay("relay", 465, tls=True)),
        ("smtp://jane:pass@relay", Relay("relay", 587, user="jane", password="pass")),
        *(
            (f"smtps://{user}:{password}@relay:1", Relay("relay", 1, tls=True, user="jane@shop", password="p:/@"))
            for user, password in (("jane%40shop", "p%3A%2F%40"), ("jane@shop", "p:/@"))
        ),
    ],
)
def test_a_relay_is_parsed_from_its_url(url: str, expected: Relay) -> None:
    assert parse_relay(url) == expected


@pytest.mark.parametrize("url", ["", "relay", "http://relay", "smtp://", "smtp://:2", "smtp://ada@relay", "smtp://r:x"])
def test_a_malformed_url_is_rejected_without_quoting_it(url: str) -> None:
    with pytest.raises(ValueError, match="must be smtp://") as refused:
        parse_relay(url)
    assert "ada" not in str(refused.value)


async def test_a_message_is_a_span_with_what_is_stored_before_it_is_sent(recorded: Recorded) -> None:
    async def store() -> bool:
        with recorded.telemetry.tracer.start_as_current_span("stored"):
            return True

    async with relay(Inbox()) as port:
        await send(port, begin_sending=store, telemetry=recorded.telemetry)
    stored, span = recorded.spans()
    assert (span.name, span.kind, span.status.status_code) == ("SMTP send", SpanKind.CLIENT, StatusCode.UNSET)
    assert dict(span.attributes or {}) == {"server.address": "127.0.0.1", "server.port": port}
    assert stored.parent == span.context
    (series,) = recorded.telemetry.histogram(semconv.SMTP_CLIENT_DURATION).series.items()
    assert (series[0], sum(series[1].counts)) == ((), 1)
    assert not [found for found in recorded.spans() if MESSAGE.recipient in found.to_json()]


async def test_a_refused_message_is_a_failed_span_without_its_address(recorded: Recorded) -> None:
    async with relay(Inbox(rcpt_response="550 no such user jane@example.com")) as port:
        await send(port, telemetry=recorded.telemetry)
    (span,) = recorded.spans()
    assert (span.status.status_code, (span.attributes or {})["error.type"]) == (StatusCode.ERROR, "RELAY_550")
    assert MESSAGE.recipient not in span.to_json()
    assert [*recorded.telemetry.histogram(semconv.SMTP_CLIENT_DURATION).series] == [(("error.type", "RELAY_550"),)]
