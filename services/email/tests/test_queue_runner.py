"""Letters on their way from the spool to a real SMTP server."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest

from chassis.failpoints import Failpoints
from chassis.telemetry.instruments import Telemetry
from email_service import queue_runner
from email_service.clients import Relay, SmtpRelay
from email_service.domain import ConfirmationEmail
from email_service.letters import LetterState, Spool
from email_service.metrics import LetterMetrics
from email_service.mime import Sender
from email_service.queue_runner import QueueRunner, letter_delay_seconds, relay_delay_seconds
from email_service.spool.opening import open_spool
from email_service.spooling import SpooledMailer
from shop_kit.waiting import wait_until
from shop_lab.world.smtp_relay import Inbox, relay

SENDER = Sender("Shop", "orders@shop.example")
EMAIL = ConfirmationEmail("o-1", "jane@example.com", "Your order o-1", "Hello\n.\n", "<p>Hello</p>\n")


@dataclass
class Running:
    spool: Spool
    mailer: SpooledMailer
    runner: QueueRunner

    async def state(self, letter_id: str = "o-1") -> LetterState | None:
        found = await self.spool.read(letter_id)
        return None if found is None else found.state

    async def reaches(self, state: LetterState, letter_id: str = "o-1") -> None:
        async def reached() -> bool:
            return await self.state(letter_id) is state

        await wait_until(reached)


@asynccontextmanager
async def running(spool_url: str, port: int, failpoints: str = "", **options: Any) -> AsyncIterator[Running]:
    """Run the queue runner on a spool, with a relay at this port."""
    async with open_spool(spool_url) as spool:
        target = SmtpRelay(Relay("127.0.0.1", port), SENDER.address, **options)
        runner = QueueRunner(spool, target, LetterMetrics(Telemetry()), Failpoints(failpoints))
        task = asyncio.create_task(runner.run())
        try:
            yield Running(spool, SpooledMailer(spool, SENDER, runner.notify), runner)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await runner.close(0.0)


def after(seconds: float) -> Callable[[], Any]:
    return lambda: asyncio.sleep(seconds)


async def test_a_letter_is_accepted_before_a_slow_relay_responds_and_delivered_once(spool_url: str) -> None:
    """Callers wait for about a second; repeated requests during the delivery are the same letter."""
    responding = asyncio.Event()
    inbox = Inbox(before_response=responding.wait)
    async with relay(inbox) as port, running(spool_url, port) as shop:
        await shop.mailer.accept([EMAIL])
        await wait_until(lambda: inbox.received == 1)
        await shop.mailer.accept([EMAIL])
        assert await shop.state() is LetterState.SENDING
        responding.set()
        await shop.reaches(LetterState.SENT)
        await shop.mailer.accept([EMAIL])
        await asyncio.sleep(1.5)  # longer than the runner's turn
    assert inbox.message_ids() == ["<o-1@shop>"]


@pytest.mark.parametrize("seconds", [0.1, 3.0])
async def test_a_relay_that_takes_its_time_gets_each_letter_once(sqlite_url: str, seconds: float) -> None:
    emails = [replace(EMAIL, order_id=f"o-{number}") for number in range(5)]
    inbox = Inbox(before_response=after(seconds))
    async with relay(inbox) as port, running(sqlite_url, port) as shop:
        await shop.mailer.accept(emails)
        for email in emails:
            await shop.reaches(LetterState.SENT, email.key)
    assert inbox.message_ids() == [f"<{email.key}@shop>" for email in emails]
    assert inbox.received == 5


async def test_a_letter_without_a_response_is_in_doubt_and_not_sent_again(spool_url: str) -> None:
    inbox = Inbox(mode="hang up")
    async with relay(inbox) as port, running(spool_url, port) as shop:
        await shop.mailer.accept([EMAIL])
        await shop.reaches(LetterState.IN_DOUBT)
        await shop.mailer.accept([EMAIL])
        await asyncio.sleep(1.5)  # longer than the runner's turn
    assert inbox.received == 1


async def test_a_letter_in_doubt_is_sent_again_when_it_is_requeued(sqlite_url: str) -> None:
    inbox = Inbox(mode="hang up")
    async with relay(inbox) as port, running(sqlite_url, port) as shop:
        await shop.mailer.accept([EMAIL])
        await shop.reaches(LetterState.IN_DOUBT)
        inbox.mode = "accept"
        assert await shop.spool.requeue("o-1")
        await shop.reaches(LetterState.SENT)
    assert inbox.received == 2


async def test_letters_wait_for_a_relay_that_is_down(spool_url: str) -> None:
    inbox = Inbox()
    async with relay(Inbox()) as port:
        pass
    async with running(spool_url, port) as shop:
        emails = [replace(EMAIL, order_id=f"o-{number}") for number in range(30)]
        await shop.mailer.accept(emails)

        async def failed() -> bool:
            found = await shop.spool.list_letters(LetterState.QUEUED, 100)
            return any(letter.reason == "SMTPConnectError" for letter in found)

        await wait_until(failed)
        async with relay(inbox, port=port):
            for email in emails:
                await shop.reaches(LetterState.SENT, email.key)
    assert inbox.message_ids() == sorted(f"<{email.key}@shop>" for email in emails)


async def test_a_deferred_letter_is_sent_later_and_delays_no_other(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_runner, "FIRST_LETTER_DELAY_SECONDS", 2.0)
    inbox = Inbox(data_responses=["451 greylisted"])
    async with relay(inbox) as port, running(sqlite_url, port) as shop:
        await shop.mailer.accept([EMAIL])
        await wait_until(lambda: inbox.received == 1)
        await shop.mailer.accept([replace(EMAIL, order_id="o-2")])
        await shop.reaches(LetterState.SENT, "o-2")
        await shop.reaches(LetterState.SENT)
    assert [message["Message-ID"] for message in inbox.messages()] == ["<o-2@shop>", "<o-1@shop>"]


async def test_a_refused_letter_is_visible_and_is_reported_when_it_is_accepted_again(spool_url: str) -> None:
    inbox = Inbox(rcpt_response="550 no such user")
    async with relay(inbox) as port, running(spool_url, port) as shop:
        await shop.mailer.accept([EMAIL])
        await shop.reaches(LetterState.REFUSED)
        (found,) = await shop.spool.list_letters(LetterState.REFUSED, 10)
        assert found.reason == "RELAY_550"
        assert [*await shop.mailer.accept([EMAIL])] == [EMAIL.order_id]


async def test_a_backlog_is_sent_concurrently(spool_url: str) -> None:
    """One after another, 300 letters would take 30 s."""
    inbox = Inbox(before_response=after(0.1))
    async with open_spool(spool_url) as spool:
        mailer = SpooledMailer(spool, SENDER, lambda: None)
        await mailer.accept([replace(EMAIL, order_id=f"o-{number}") for number in range(300)])
    async with relay(inbox) as port, running(spool_url, port):
        await wait_until(lambda: len(inbox.mails) == 300, timeout_seconds=20)
    assert len(set(inbox.message_ids())) == 300


async def test_two_replicas_send_each_letter_once(postgres_url: str) -> None:
    inbox = Inbox()
    async with relay(inbox) as port, running(postgres_url, port) as one, running(postgres_url, port) as other:
        emails = [replace(EMAIL, order_id=f"o-{number}") for number in range(100)]
        await asyncio.gather(*(shop.mailer.accept([email]) for email in emails for shop in (one, other)))
        for email in emails:
            await one.reaches(LetterState.SENT, email.key)
    assert inbox.message_ids() == sorted(f"<{email.key}@shop>" for email in emails)


async def test_an_error_while_sending_does_not_end_the_runner(sqlite_url: str) -> None:
    inbox = Inbox()
    async with relay(inbox) as port, running(sqlite_url, port, "email.sending.before=error*1") as shop:
        await shop.mailer.accept([EMAIL])
        await wait_until(lambda: shop.runner._failpoints._left["email.sending.before"] == 0)
        await shop.mailer.accept([replace(EMAIL, order_id="o-2")])
        await shop.reaches(LetterState.SENT, "o-2")


async def test_letters_on_their_way_are_finished_before_the_runner_closes(sqlite_url: str) -> None:
    responding = asyncio.Event()
    inbox = Inbox(before_response=responding.wait)
    async with relay(inbox) as port, running(sqlite_url, port) as shop:
        await shop.mailer.accept([EMAIL])
        await wait_until(lambda: inbox.received == 1)
        closing = asyncio.create_task(shop.runner.close(60.0))
        responding.set()
        await closing
        assert await shop.state() is LetterState.SENT


async def test_neither_address_nor_the_relay_s_text_is_logged(
    sqlite_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async with (
        relay(Inbox(rcpt_response="550 jane@example.com is unknown")) as port,
        running(sqlite_url, port) as shop,
    ):
        await shop.mailer.accept([EMAIL])
        await shop.reaches(LetterState.REFUSED)
    output = capsys.readouterr().out
    assert "RELAY_550" in output
    assert "jane" not in output


def test_delays_grow_up_to_a_limit() -> None:
    assert [relay_delay_seconds(failures) for failures in (1, 2, 3, 100)] == [1, 2, 4, 60]
    assert [letter_delay_seconds(deferrals) for deferrals in (0, 1, 2, 100)] == [30, 60, 120, 3600]
