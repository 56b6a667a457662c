"""What follows placed orders: confirmations and removals from carts, many in one internal call, or one by one."""

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import nullcontext
from dataclasses import replace
from unittest import mock

import pytest
from opentelemetry.context import Context
from opentelemetry.trace import SpanContext
from structlog.testing import capture_logs

import checkout_service.outbox
from chassis.deadline import deadline
from chassis.errors import DomainError, Internal, InvalidArgument, ResourceExhausted, Unavailable, Unimplemented
from chassis.failpoints import Failpoints
from chassis.rpc.server import Service
from chassis.telemetry import semconv
from chassis.telemetry.instruments import Telemetry
from checkout_service.domain import State
from checkout_service.journal.sql import Journal
from checkout_service.metrics import OrderMetrics
from checkout_service.outbox import Outbox
from checkout_service.peers import carts, internal_service
from checkout_service.peers.batches import Batches
from checkout_service.peers.channels import Addresses, Peers
from checkout_service.peers.confirmations import EmailClient
from checkout_service.ports import EMAIL, EMPTY_CART, Entry, OutboxItem, Sender
from checkout_service.queue_workers import PollTimer
from shop_internal.ordered_cart_pb2 import RemoveAllOrderedResponse
from shop_kit.checkouts import peer_addresses
from shop_kit.fake_peers import FakePeers, Fault
from shop_kit.orders import new_order
from shop_kit.serving import Recorded
from shop_kit.settings import load_settings
from shop_kit.waiting import wait_until

A, B, C = (f"{name}@mail.example" for name in "abc")


def placed(email: str) -> Entry:
    """Return a placed order whose confirmation goes to this address."""
    return replace(new_order(email, email=email), state=State.SHIPPED, tracking_id="tracking")


@pytest.fixture
def removals(peers: FakePeers) -> list[Entry]:
    """Four placed orders, whose items are still in their users' carts."""
    users = ("ann", "bob", "eve", "joe")
    for user in users:
        peers.cart.fill(user, mug=2)
    return [new_order(user, user_id=user, cart_generation=peers.cart.etags[user][:16]) for user in users]


@pytest.fixture
async def clients(peers: FakePeers, recorded: Recorded) -> AsyncIterator[Peers]:
    """Clients of the fake peers."""
    async with peers.serving() as address:
        settings = load_settings(Addresses, peer_addresses(address))
        service = Service(settings, recorded.telemetry)
        async with service.channels:
            yield Peers(settings, service)


async def confirm_all(client: EmailClient, *emails: str) -> list[str | None]:
    """Confirm placed orders to these addresses at the same time; return the reason of each that fails."""

    async def confirm(email: str) -> str | None:
        try:
            await client.confirm(placed(email))
        except DomainError as error:
            return error.reason
        return None

    return await asyncio.gather(*map(confirm, emails))


def recipients(peers: FakePeers) -> list[str]:
    return sorted(request.email for request in peers.email.sent)


async def test_confirmations_of_the_same_moment_are_one_call(clients: Peers, peers: FakePeers) -> None:
    assert await confirm_all(clients.email, A, B) == [None, None]
    assert recipients(peers) == [A, B]
    assert peers.confirmations.calls["AcceptConfirmations"] == 1


async def test_a_call_for_several_traces_is_part_of_one_and_links_to_others(clients: Peers, recorded: Recorded) -> None:
    async def confirm_in_trace(recipient: str) -> SpanContext:
        with recorded.telemetry.tracer.start_as_current_span("order", Context()) as span:
            await clients.email.confirm(placed(recipient))
        return span.get_span_context()

    first, *others = await asyncio.gather(*map(confirm_in_trace, (A, B, C)))
    await confirm_in_trace("alone@mail.example")
    (sent,) = [span for span in recorded.spans() if span.name == "send confirmations"]
    assert sent.parent == first
    assert [link.context for link in sent.links] == others
    assert sent.attributes == {semconv.BATCH_SIZE: 3}


async def test_more_than_twenty_confirmations_are_several_calls(clients: Peers, peers: FakePeers) -> None:
    await confirm_all(clients.email, *(f"{number}@mail.example" for number in range(41)))
    assert len(set(recipients(peers))) == len(peers.email.sent) == 41
    assert peers.confirmations.calls["AcceptConfirmations"] == 3


async def test_a_refused_confirmation_fails_only_its_own_order(clients: Peers, peers: FakePeers) -> None:
    peers.email.faults["SendOrderConfirmation"] = Fault(InvalidArgument.field("email", "must be known"), times=1)
    assert await confirm_all(clients.email, A, B) == ["INVALID_ARGUMENT", None]
    assert recipients(peers) == [B]


@pytest.mark.parametrize(
    ("error", "is_of_each", "alone"),
    [
        (Unavailable("down"), True, 0),
        (ResourceExhausted("busy"), True, 0),
        (Internal("defect"), False, 2),
        (InvalidArgument.field("confirmations", "too many"), False, 2),
    ],
)
async def test_confirmations_of_a_call_that_fails_are_sent_one_by_one_unless_the_peer_is_down(
    clients: Peers, peers: FakePeers, error: DomainError, is_of_each: bool, alone: int
) -> None:
    peers.confirmations.faults["AcceptConfirmations"] = Fault(error, times=1)
    assert await confirm_all(clients.email, A, B) == [error.reason if is_of_each else None] * 2
    assert peers.email.calls["SendOrderConfirmation"] == alone
    await clients.email.confirm(placed(C))
    assert peers.confirmations.calls["AcceptConfirmations"] == 2


async def test_an_email_service_of_the_contract_alone_gets_one_call_for_each(clients: Peers, peers: FakePeers) -> None:
    peers.confirmations.fail(Unimplemented("no such method"))
    await confirm_all(clients.email, A, B)
    await clients.email.confirm(placed(C))
    assert recipients(peers) == [A, B, C]
    assert peers.confirmations.calls["AcceptConfirmations"] == 1


async def test_a_cancelled_caller_does_not_stop_the_confirmations_of_others(clients: Peers, peers: FakePeers) -> None:
    gate = peers.confirmations.hold("AcceptConfirmations")
    left_out, cancelled, other = (clients.email.confirm(placed(recipient)) for recipient in (A, B, C))
    left_out.cancel()
    await wait_until(lambda: peers.confirmations.calls["AcceptConfirmations"])
    cancelled.cancel()
    gate.set()
    await other
    assert recipients(peers) == [B, C]


async def until_called(peers: FakePeers, calls: int) -> None:
    await wait_until(lambda: peers.ordered_cart.calls["RemoveAllOrdered"] == calls)


@pytest.mark.parametrize(("delay_seconds", "calls_meanwhile"), [(3600.0, 1), (carts.DELAY_SECONDS, 2)])
async def test_the_first_removal_is_sent_at_once_and_those_during_its_call_together_after_it_or_after_a_delay(
    clients: Peers, peers: FakePeers, removals: list[Entry], delay_seconds: float, calls_meanwhile: int
) -> None:
    clients.cart._batches.delay_seconds = delay_seconds
    gate = peers.ordered_cart.hold("RemoveAllOrdered")
    calls = [clients.cart.remove_ordered(removals[0])]
    await until_called(peers, 1)
    calls += [clients.cart.remove_ordered(entry) for entry in removals[1:]]
    await until_called(peers, calls_meanwhile)
    gate.set()
    await asyncio.gather(*calls)
    assert (peers.ordered_cart.calls["RemoveAllOrdered"], peers.cart.lines) == (2, {})


async def test_removals_that_fail_together_are_sent_one_by_one(
    clients: Peers, peers: FakePeers, removals: list[Entry]
) -> None:
    peers.ordered_cart.faults["RemoveAllOrdered"] = Fault(Internal("defect"))
    await asyncio.gather(*map(clients.cart.remove_ordered, removals))
    assert peers.cart.lines == {}


@pytest.mark.parametrize("has_generation", [True, False])
async def test_a_cart_with_a_generation_is_not_emptied_while_a_proxy_hides_its_internal_service(
    clients: Peers, peers: FakePeers, removals: list[Entry], monkeypatch: pytest.MonkeyPatch, has_generation: bool
) -> None:
    monkeypatch.setattr(internal_service, "ABSENT_AFTER_SECONDS", 0.0)
    peers.cart.has_generations = has_generation
    peers.ordered_cart.fail(Unimplemented("no route"))
    with pytest.raises(Unavailable) if has_generation else nullcontext():
        await clients.cart.remove_ordered(removals[0])
    assert peers.cart.calls["EmptyCart"] == int(not has_generation)


def accept(_entry: Entry) -> asyncio.Future[None]:
    """Send an item at once, as a peer that works."""
    sent = asyncio.get_running_loop().create_future()
    sent.set_result(None)
    return sent


def outbox_of(journal: Journal, remove_ordered: Sender = accept) -> Outbox:
    telemetry, senders = Telemetry(), {EMAIL: accept, EMPTY_CART: remove_ordered}
    return Outbox(journal, senders, PollTimer(), OrderMetrics(telemetry), telemetry, Failpoints())


async def send(outbox: Outbox, entry: Entry) -> None:
    await outbox.send_now(entry, outbox.start_removal(entry))


async def test_a_failed_removal_that_nobody_awaits_does_not_break_the_shutdown(journal: Journal) -> None:
    failing = asyncio.get_running_loop().create_future()
    outbox = outbox_of(journal, lambda _entry: failing)
    removal = outbox.start_removal(placed(A))
    closing = asyncio.create_task(outbox.close())
    await asyncio.sleep(0)
    failing.set_exception(Unavailable("down"))
    await closing
    assert isinstance(removal.exception(), Unavailable)


async def test_no_commit_completes_more_than_twenty_items(journal: Journal) -> None:
    outbox = outbox_of(journal)
    with mock.patch.object(journal, "complete", wraps=journal.complete) as complete:
        for number in range(25):
            await send(outbox, placed(f"{number}@mail.example"))
        await outbox.close()
    assert [len(call.args[0]) for call in complete.call_args_list] == [20, 20, 10]


async def test_a_hanging_completion_does_not_block_the_next(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkout_service.outbox, "_COMPLETE_SECONDS", 0.01)
    monkeypatch.setattr(checkout_service.outbox, "_COMPLETE_WITHIN_SECONDS", 0.05)
    outbox = outbox_of(journal)
    calls: list[Collection[OutboxItem]] = []

    async def complete(sent: Collection[OutboxItem]) -> list[str]:
        calls.append(sent)
        if len(calls) == 1:
            await asyncio.Event().wait()
        return []

    with mock.patch.object(journal, "complete", complete), capture_logs() as lines:
        running = asyncio.create_task(outbox.run())
        await send(outbox, placed(A))
        await wait_until(lambda: calls)
        await send(outbox, placed(B))
        await wait_until(lambda: calls[1:])
        running.cancel()
    warnings = [line["event"] for line in lines if line["log_level"] in {"warning", "error"}]
    assert warnings == ["sent items cannot be completed"]


async def test_a_batch_does_not_inherit_the_deadline_of_one_of_its_orders(recorded: Recorded) -> None:
    async def together(_items: Sequence[str]) -> RemoveAllOrderedResponse:
        assert deadline.get() is None
        return RemoveAllOrderedResponse()

    deadline.set(1.0)
    await Batches("items", together, mock.AsyncMock(), recorded.telemetry, delay_seconds=0.0).send("item")
