"""Tests that send messages from the spool to a real SMTP server."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from chassis.failpoints import Failpoints
from chassis.telemetry.instruments import Telemetry
from email_service import queue_runner
from email_service.failpoints import OUTCOME, SENDING
from email_service.messages import MessageState, NewMessage
from email_service.metrics import MessageMetrics
from email_service.queue_runner import QueueRunner, delay_seconds, retry_seconds
from email_service.smtp_relay import Relay, SmtpRelay
from email_service.spool.sql import Spool, open_spool
from shop_kit.databases import execute
from shop_kit.smtp_relay import Inbox, relay
from shop_kit.waiting import wait_for_result, wait_until


def new_message(message_id: str = "o-1") -> NewMessage:
    content = f"Message-ID: <{message_id}@shop>\r\n\r\nHello\r\n.\r\n"
    return NewMessage(message_id, "jane@example.com", content.encode())


def new_messages(count: int) -> list[NewMessage]:
    return [new_message(f"o-{number}") for number in range(count)]


@dataclass
class Running:
    """A spool and its queue runner."""

    spool: Spool
    runner: QueueRunner

    async def accept(self, *messages: NewMessage) -> Mapping[str, MessageState]:
        return await self.spool.add(messages or [new_message()])

    async def state(self, message_id: str = "o-1") -> MessageState | None:
        found = await self.spool.read(message_id)
        return None if found is None else found.state

    async def reaches(self, state: MessageState, message_id: str = "o-1") -> None:
        await wait_for_result(lambda: self.state(message_id), lambda reached: reached is state)


@asynccontextmanager
async def running(url: str, port: int, failpoints: str = "") -> AsyncIterator[Running]:
    """Run the queue runner on a spool, with a relay that listens on this port."""
    async with open_spool(url) as spool:
        target = SmtpRelay(Relay("127.0.0.1", port), "orders@shop.example")
        runner = QueueRunner(spool, target, MessageMetrics(Telemetry()), Failpoints(failpoints))
        task = asyncio.create_task(runner.run())
        try:
            yield Running(spool, runner)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await runner.close(0.0)


@pytest.fixture(autouse=True)
def _poll_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_runner, "_POLL_SECONDS", 0.05)


async def test_a_message_is_accepted_before_a_slow_relay_responds_and_delivered_once(sqlite_url: str) -> None:
    """Repeated requests during the delivery do not create another message."""
    responding = asyncio.Event()
    async with relay(inbox := Inbox(before_response=responding.wait)) as port, running(sqlite_url, port) as shop:
        await shop.accept()
        await wait_until(lambda: inbox.received == 1)
        await shop.accept()
        assert await shop.state() is MessageState.SENDING
        await asyncio.sleep(0.2)  # longer than the runner's poll interval
        responding.set()
        await shop.reaches(MessageState.SENT)
        await shop.accept()
        await asyncio.sleep(0.2)  # longer than the runner's poll interval
    assert inbox.message_ids() == ["<o-1@shop>"]


async def test_a_message_without_a_response_is_in_doubt_and_not_sent_again(sqlite_url: str) -> None:
    async with relay(inbox := Inbox(mode="hang up")) as port, running(sqlite_url, port) as shop:
        await shop.accept()
        await shop.reaches(MessageState.IN_DOUBT)
        await shop.accept()
        await asyncio.sleep(0.2)  # longer than the runner's poll interval
    assert inbox.received == 1


async def test_messages_wait_for_a_relay_that_is_down(sqlite_url: str) -> None:
    inbox = Inbox()
    async with relay(Inbox()) as port:
        pass
    async with running(sqlite_url, port) as shop:
        messages = new_messages(30)
        await shop.accept(*messages)
        await wait_for_result(
            lambda: shop.spool.list_unsent(MessageState.QUEUED, 100),
            lambda found: any(message.reason == "SMTPConnectError" for message in found),
        )
        async with relay(inbox, port=port):
            for message in messages:
                await shop.reaches(MessageState.SENT, message.message_id)
    assert inbox.message_ids() == sorted(f"<{message.message_id}@shop>" for message in messages)


async def test_a_deferred_message_is_sent_later_and_delays_no_other(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_runner, "delay_seconds", lambda _: 2.0)
    async with relay(inbox := Inbox(data_responses=["451 greylisted"])) as port, running(sqlite_url, port) as shop:
        await shop.accept()
        await wait_until(lambda: inbox.received == 1)
        await shop.accept(new_message("o-2"))
        await shop.reaches(MessageState.SENT, "o-2")
        await shop.reaches(MessageState.SENT)
    assert [message["Message-ID"] for message in inbox.messages()] == ["<o-2@shop>", "<o-1@shop>"]


async def test_a_backlog_is_sent_concurrently(sqlite_url: str) -> None:
    responding = asyncio.Event()
    inbox = Inbox(before_response=responding.wait)
    async with open_spool(sqlite_url) as spool:
        await spool.add(new_messages(3 * queue_runner.MAX_CONCURRENT))
    async with relay(inbox) as port, running(sqlite_url, port):
        await wait_until(lambda: inbox.received == queue_runner.MAX_CONCURRENT)
        responding.set()
        await wait_until(lambda: len(inbox.mails) == 3 * queue_runner.MAX_CONCURRENT)
    assert len(set(inbox.message_ids())) == 3 * queue_runner.MAX_CONCURRENT


@pytest.mark.parametrize("point", [*SENDING, *OUTCOME])
async def test_a_message_survives_a_crash_and_is_sent_at_most_once(sqlite_url: str, point: str) -> None:
    """The message is in doubt only if the relay may have received its text."""
    async with relay(inbox := Inbox()) as port:
        async with running(sqlite_url, port, f"{point}=hang") as crashing:
            await crashing.accept()
            await wait_until(lambda: crashing.runner._failpoints.enabled[point]._calls)
        async with running(sqlite_url, port) as restarted:
            is_in_doubt = point in {SENDING[1], OUTCOME[0]}
            assert await restarted.spool.give_up_overdue() == ["o-1"] * is_in_doubt
            await restarted.reaches(MessageState.IN_DOUBT if is_in_doubt else MessageState.SENT)
    assert len(inbox.mails) == (0 if point == SENDING[1] else 1)


async def test_a_shutdown_waits_for_a_message_on_its_way(sqlite_url: str) -> None:
    responding = asyncio.Event()
    async with relay(inbox := Inbox(before_response=responding.wait)) as port, running(sqlite_url, port) as shop:
        await shop.accept()
        await wait_until(lambda: inbox.received == 1)
        closing = asyncio.create_task(shop.runner.close(60))
        await asyncio.sleep(0)
        responding.set()
        await closing
        assert await shop.state() is MessageState.SENT


async def test_an_error_while_sending_does_not_end_the_runner(sqlite_url: str) -> None:
    async with relay(inbox := Inbox()) as port, running(sqlite_url, port, "email.sending.before=error*1") as shop:
        await shop.accept()
        await wait_until(lambda: not shop.runner._failpoints.enabled["email.sending.before"]._left)
        await shop.accept(new_message("o-2"))
        await shop.reaches(MessageState.SENT, "o-2")
    assert inbox.message_ids() == ["<o-2@shop>"]


async def test_rows_that_cannot_be_written_delay_no_other_message(database_url: str) -> None:
    """Neither rows that cannot be claimed nor rows whose outcome cannot be stored block the queue, however many."""
    inbox = Inbox()
    async with open_spool(database_url) as spool:
        await spool.add(new_messages(2 * queue_runner.MAX_CONCURRENT))
        refuse(database_url, "OLD.letter_id < 'o-2' OR NEW.state = 'SENT'")
        async with relay(inbox) as port, running(database_url, port) as shop:
            await wait_until(lambda: len(set(inbox.message_ids())) == 2 * queue_runner.MAX_CONCURRENT - 12)
            execute(database_url, "DROP TRIGGER refuse" + " ON letters" * database_url.startswith("postgresql"))
            for number in range(2 * queue_runner.MAX_CONCURRENT):
                await shop.reaches(MessageState.SENT, f"o-{number}")
    assert len(set(inbox.message_ids())) == 2 * queue_runner.MAX_CONCURRENT


def refuse(url: str, condition: str) -> None:
    """Make the database refuse updates that match this SQL condition."""
    if url.startswith("postgresql"):
        body = "LANGUAGE plpgsql AS $$ BEGIN RAISE 'no' USING ERRCODE = 'XX000'; END $$"
        execute(url, f"CREATE FUNCTION refuse() RETURNS TRIGGER {body}")
        then = f"FOR EACH ROW WHEN ({condition}) EXECUTE FUNCTION refuse()"
    else:
        then = f"WHEN {condition} BEGIN SELECT RAISE(ABORT, 'no'); END"
    execute(url, f"CREATE TRIGGER refuse BEFORE UPDATE ON letters {then}")


async def test_neither_address_nor_relay_text_is_logged(sqlite_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    async with relay(Inbox(rcpt_response="550 jane@example.com is unknown")) as port, running(sqlite_url, port) as shop:
        await shop.accept()
        await shop.reaches(MessageState.REFUSED)
    output = capsys.readouterr().out
    assert "RELAY_550" in output
    assert "jane" not in output


def test_delays_grow_up_to_a_limit() -> None:
    assert [retry_seconds(failures) for failures in (1, 2, 3, 100)] == [1, 2, 4, 60]
    assert [delay_seconds(deferrals) for deferrals in (1, 2, 3, 100)] == [30, 60, 120, 3600]
