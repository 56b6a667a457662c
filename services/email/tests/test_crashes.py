"""Email processes that are killed at every failpoint: no accepted message is lost, and none is sent twice."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import grpc
import pytest

from email_service.failpoints import AFTER_ACCEPT, BEFORE_ACCEPT, FAILPOINTS
from shop.email_pb2 import SendOrderConfirmationRequest
from shop.email_pb2_grpc import EmailServiceStub
from shop.money_pb2 import Money
from shop.order_pb2 import OrderResult
from shop_internal import letter_spool_pb2 as spool_pb2
from shop_internal.confirmations_pb2 import AcceptConfirmationsRequest
from shop_internal.confirmations_pb2_grpc import ConfirmationsStub
from shop_internal.letter_spool_pb2_grpc import LetterSpoolStub
from shop_kit.processes import service_process
from shop_kit.smtp_relay import Inbox, relay
from shop_kit.waiting import wait_until

REQUEST = SendOrderConfirmationRequest(
    email="jane@example.com", order=OrderResult(order_id="o-1", shipping_cost=Money(currency_code="EUR", units=5))
)
ORDER_IDS = ("o-1", "o-2", "o-3")


def batch() -> AcceptConfirmationsRequest:
    request = AcceptConfirmationsRequest(confirmations=[REQUEST] * len(ORDER_IDS))
    for confirmation, order_id in zip(request.confirmations, ORDER_IDS, strict=True):
        confirmation.order.order_id = order_id
    return request


@dataclass(frozen=True)
class Running:
    """A process and stubs of both of its services."""

    process: asyncio.subprocess.Process
    email: EmailServiceStub
    confirmations: ConfirmationsStub
    spool: LetterSpoolStub


@asynccontextmanager
async def process(url: str, relay_port: int, failpoints: str = "") -> AsyncIterator[Running]:
    """Run the service in its own process."""
    smtp_url = f"smtp://127.0.0.1:{relay_port}"
    async with (
        service_process("email_service", DATABASE_URL=url, SMTP_URL=smtp_url, FAILPOINTS=failpoints) as running,
        grpc.aio.insecure_channel(f"127.0.0.1:{running.port}") as public,
        grpc.aio.insecure_channel(f"127.0.0.1:{running.internal_port}") as internal,
    ):
        stubs = EmailServiceStub(public), ConfirmationsStub(internal), LetterSpoolStub(internal)
        yield Running(running.process, *stubs)


async def state_of(running: Running, message_id: str = "o-1") -> str:
    found = await running.spool.GetLetter(spool_pb2.GetLetterRequest(letter_id=message_id))
    return spool_pb2.LetterState.Name(found.letter.state).removeprefix("LETTER_STATE_")


async def wait_for_state(running: Running, *states: str, message_id: str = "o-1") -> str:
    async def reached() -> str | None:
        state = await state_of(running, message_id)
        return state if state in states else None

    return await wait_until(reached) or ""


@pytest.mark.parametrize("point", FAILPOINTS)
async def test_a_message_survives_a_kill_and_is_sent_at_most_once(sqlite_url: str, point: str) -> None:
    """The caller repeats its request, as checkout does. A message may be in doubt only if the relay had its text."""
    inbox = Inbox()
    async with relay(inbox) as relay_port:
        async with process(sqlite_url, relay_port, f"{point}=kill") as running:
            await asyncio.gather(running.email.SendOrderConfirmation(REQUEST), return_exceptions=True)
            assert await running.process.wait() == -signal.SIGKILL
        async with process(sqlite_url, relay_port) as running:
            await running.email.SendOrderConfirmation(REQUEST)
            state = await wait_for_state(running, "SENT", "IN_DOUBT")
    assert len(inbox.mails) == (0 if point == "email.sending.after" else 1)
    assert state == ("IN_DOUBT" if point in {"email.sending.after", "email.outcome.before"} else "SENT")


@pytest.mark.parametrize("point", [BEFORE_ACCEPT, AFTER_ACCEPT])
async def test_a_batch_repeated_after_a_kill_is_sent_once(sqlite_url: str, point: str) -> None:
    inbox = Inbox()
    async with relay(inbox) as relay_port:
        async with process(sqlite_url, relay_port, f"{point}=kill") as running:
            with pytest.raises(grpc.aio.AioRpcError):
                await running.confirmations.AcceptConfirmations(batch())
            assert await running.process.wait() == -signal.SIGKILL
        async with process(sqlite_url, relay_port) as running:
            await running.confirmations.AcceptConfirmations(batch())
            for order_id in ORDER_IDS:
                await wait_for_state(running, "SENT", message_id=order_id)
    assert inbox.message_ids() == [f"<{order_id}@shop>" for order_id in ORDER_IDS]


async def test_a_message_that_was_accepted_is_sent_without_a_repeated_request(sqlite_url: str) -> None:
    inbox = Inbox()
    async with relay(inbox) as relay_port:
        async with process(sqlite_url, relay_port, "email.accept.after=kill") as running:
            with pytest.raises(grpc.aio.AioRpcError):
                await running.email.SendOrderConfirmation(REQUEST)
            await running.process.wait()
        async with process(sqlite_url, relay_port) as running:
            assert await wait_for_state(running, "SENT", "IN_DOUBT") == "SENT"
    assert inbox.message_ids() == ["<o-1@shop>"]


async def test_a_shutdown_waits_for_a_message_on_its_way(sqlite_url: str) -> None:
    responding = asyncio.Event()
    inbox = Inbox(before_response=responding.wait)
    async with relay(inbox) as relay_port:
        async with process(sqlite_url, relay_port) as running:
            await running.email.SendOrderConfirmation(REQUEST)
            await wait_until(lambda: inbox.received == 1)
            running.process.terminate()
            responding.set()
            assert await running.process.wait() == 0
        async with process(sqlite_url, relay_port) as running:
            assert await state_of(running) == "SENT"
    assert inbox.received == 1
