"""Backlogs are worked off at once, and what fails every time delays nothing else."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from chassis.errors import Unavailable, Unimplemented
from chassis.rpc.wire import money_to_wire
from chassis.sql import retention
from chassis.values.orders import Address
from checkout_service import outbox, queue_workers, recovery
from checkout_service.domain import State, Transition, charge_key
from checkout_service.journal import sql
from checkout_service.journal.sql import Journal
from checkout_service.ports import EMAIL, Entry, JournalUnavailable
from checkout_service.queue_workers import CircuitBreaker, PollTimer, QueueWorker, circuits_of
from shop import payment_pb2
from shop_internal import orders_pb2
from shop_kit.checkouts import Start
from shop_kit.clock import Clock
from shop_kit.fake_peers import FakePeers, Fault
from shop_kit.orders import new_order
from shop_kit.waiting import wait_for_result, wait_until

BACKLOG = 120


@pytest.fixture
def clock(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of circuit breakers."""
    monkeypatch.setattr(CircuitBreaker, "_now", lambda _: clock.seconds)
    return clock


def opened(*, failures: int = 5) -> CircuitBreaker:
    """Return a circuit breaker whose calls began together and failed."""
    circuit = CircuitBreaker("peer")
    for _ in range(failures):
        circuit.record_failure()
    return circuit


@pytest.mark.usefixtures("clock")
def test_failures_in_a_row_open_the_circuit_and_one_success_closes_it() -> None:
    circuit = opened()
    assert circuit.admit(16, 0) == 0
    circuit.record_success()
    assert circuit.admit(16, 0) == 16


@pytest.mark.parametrize("failures", [5, 16])
def test_an_open_circuit_admits_one_probe_after_a_pause_since_it_opened(clock: Clock, failures: int) -> None:
    circuit = opened(failures=failures)
    clock.seconds += 1.0
    assert (circuit.admit(16, 0), circuit.admit(15, 1)) == (1, 0)


def test_the_pause_between_probes_grows_to_a_minute(clock: Clock) -> None:
    circuit, probed_at = opened(), clock.seconds
    pauses: list[float] = []
    while len(pauses) < 8:
        clock.seconds += 0.5
        if circuit.admit(1, 0):
            circuit.record_failure()
            pauses.append(clock.seconds - probed_at)
            probed_at = clock.seconds
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]


@pytest.mark.usefixtures("clock")
def test_items_that_failed_before_open_their_own_circuit_which_the_success_of_a_first_attempt_closes() -> None:
    circuits = circuits_of("peer")
    for _ in range(5):
        circuits[True].record_failure()
    assert (circuits[True].admit(16, 0), circuits[False].admit(16, 0)) == (0, 16)
    for _ in range(5):
        circuits[False].record_failure()
    circuits[False].record_success()
    assert (circuits[True].open, circuits[False].open) == (False, False)


class Queue:
    """Numbered items, which are claimed once, after errors."""

    def __init__(self, count: int, *errors: Exception) -> None:
        self.left, self.errors = [*range(count)], [*errors]

    async def claim(self, limit: int) -> list[int]:
        if self.errors:
            raise self.errors.pop()
        claimed, self.left = self.left[:limit], self.left[limit:]
        return claimed


@asynccontextmanager
async def working(queue: Queue, work: Callable[[int, CircuitBreaker], Awaitable[bool]]) -> AsyncIterator[None]:
    """Run a worker of the queue until the context ends."""
    worker = asyncio.create_task(QueueWorker(PollTimer(), CircuitBreaker("peer"), queue.claim, work).run())
    yield
    worker.cancel()


async def test_a_worker_works_on_a_limited_number_of_items() -> None:
    in_progress, most, queue = 0, 0, Queue(100)

    async def work(_item: int, _circuit: CircuitBreaker) -> bool:
        nonlocal in_progress, most
        in_progress += 1
        most = max(most, in_progress)
        await asyncio.sleep(0)
        in_progress -= 1
        return True

    async with working(queue, work):
        await wait_until(lambda: not queue.left and in_progress == 0)
    assert most == queue_workers.CONCURRENCY


@pytest.mark.parametrize("error", [JournalUnavailable("down"), ValueError("a defect"), None], ids=str)
async def test_a_worker_continues_after_claims_that_fail_and_work_that_fails_or_hangs(
    monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    monkeypatch.setattr(queue_workers, "_WORK_WITHIN_SECONDS", 0.01)
    monkeypatch.setattr(queue_workers, "_FAILURES_TO_OPEN", 1000)
    queue = Queue(3 * queue_workers.CONCURRENCY, JournalUnavailable("down"), ValueError("a defect"))

    async def work(_item: int, _circuit: CircuitBreaker) -> bool:
        if error is not None:
            raise error
        return await asyncio.Event().wait()

    async with working(queue, work):
        assert await wait_until(lambda: not queue.left)


async def test_workers_have_their_turns_at_the_same_moment() -> None:
    turns, moments = PollTimer(), 0

    async def wait_and_count() -> None:
        nonlocal moments
        await turns.wait()
        moments += 1

    first = [asyncio.create_task(wait_and_count()) for _ in range(8)]
    await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
    assert moments == len(first)


# Backlogs


@dataclass(frozen=True)
class Backlog:
    """The work of a worker that died, for a checkout that starts later."""

    journal: Journal
    peers: FakePeers

    async def charged(self, *entries: Entry) -> None:
        """Add orders that were charged and not shipped."""
        await asyncio.gather(*map(self.journal.insert, entries))
        await asyncio.gather(*(self.journal.release(entry, delay_seconds=-1, reason="") for entry in entries))
        for entry in entries:
            amount = money_to_wire(entry.order.total)
            self.peers.payment.ledger[charge_key(entry.order_id, 1)] = "charged"
            self.peers.payment.requests[charge_key(entry.order_id, 1)] = payment_pb2.ChargeRequest(amount=amount)

    async def shipped(self, *entries: Entry) -> None:
        """Add orders that were shipped, with their outbox items, which are due at once."""
        transition = Transition(State.CHARGING, State.SHIPPED, "transaction", "track")
        await asyncio.gather(*map(self.journal.insert, entries))
        await asyncio.gather(*(self.journal.update(entry, transition) for entry in entries))


def orders(count: int = BACKLOG, **changed: Any) -> list[Entry]:
    return [new_order(f"{number}", **changed) for number in range(count)]


@pytest.fixture
def backlog(journal: Journal, peers: FakePeers, monkeypatch: pytest.MonkeyPatch) -> Backlog:
    monkeypatch.setattr(sql, "OUTBOX_LEASE_SECONDS", -1)
    return Backlog(journal, peers)


async def test_backlogs_are_worked_off_without_a_pause(
    backlog: Backlog, peers: FakePeers, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_workers, "POLL_SECONDS", 600.0)
    entries = orders(2 * BACKLOG)
    await backlog.shipped(*entries[:BACKLOG])
    await backlog.charged(*entries[BACKLOG:])
    async with start() as checkout:
        await checkout.until_done(BACKLOG)
        await wait_until(lambda: len(peers.shipping.shipments) == BACKLOG)
    assert len(peers.email.sent) >= BACKLOG


async def test_confirmations_that_hang_do_not_delay_carts(backlog: Backlog, peers: FakePeers, start: Start) -> None:
    peers.email.hold("SendOrderConfirmation")
    await backlog.shipped(*orders())
    async with start():
        await wait_until(lambda: peers.ordered_cart.calls["RemoveOrdered"] == BACKLOG)
    assert peers.email.calls["SendOrderConfirmation"] <= 2 * queue_workers.CONCURRENCY


async def test_confirmations_that_failed_before_do_not_delay_new_ones(
    backlog: Backlog, peers: FakePeers, start: Start
) -> None:
    peers.email.hanging_address = "hopeless@mail.example"
    await backlog.shipped(*orders(100, email=peers.email.hanging_address))
    for item in await backlog.journal.claim_outbox(EMAIL, 100, failed=False):
        await backlog.journal.postpone(item, delay_seconds=-1, reason="TIMEOUT")
    await backlog.shipped(new_order("new"))
    async with start():
        assert await wait_until(lambda: [mail.email for mail in peers.email.sent] == ["ann@mail.example"])


# Failures


@pytest.fixture
def _short_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_workers, "_FIRST_PAUSE_SECONDS", 0.1)
    monkeypatch.setattr(queue_workers, "_LONGEST_PAUSE_SECONDS", 0.1)
    monkeypatch.setattr(outbox, "retry_delay_seconds", lambda _failures: -1.0)


@pytest.mark.usefixtures("_short_intervals")
async def test_items_are_not_tried_one_by_one_while_their_peer_is_down(
    backlog: Backlog, peers: FakePeers, start: Start
) -> None:
    peers.email.faults["SendOrderConfirmation"] = Fault(Unavailable("down"))
    await backlog.shipped(*orders())
    async with start() as checkout:
        await wait_until(lambda: peers.ordered_cart.calls["RemoveOrdered"] == BACKLOG)
        calls = peers.email.calls["SendOrderConfirmation"]
        await wait_until(lambda: peers.email.calls["SendOrderConfirmation"] >= calls + 3)
        assert peers.email.calls["SendOrderConfirmation"] < BACKLOG
        peers.email.faults.clear()
        await checkout.until_done(BACKLOG)


@pytest.mark.usefixtures("_short_intervals")
@pytest.mark.parametrize(("max_failures", "dead_letters"), [(2, ["email"]), (10, [])])
async def test_an_item_that_fails_too_often_is_a_dead_letter_unless_its_peer_is_known_to_be_down(
    backlog: Backlog, start: Start, monkeypatch: pytest.MonkeyPatch, max_failures: int, dead_letters: list[str]
) -> None:
    monkeypatch.setattr(outbox, "MAX_FAILURES", max_failures)
    backlog.peers.email.faults["SendOrderConfirmation"] = Fault(Unavailable("down"), times=50)
    await backlog.shipped(*orders(1))
    async with start() as checkout:

        async def ended() -> list[orders_pb2.Order]:
            is_done = orders_pb2.ORDER_STATE_DONE
            return [order for order in await checkout.listed() if order.dead_letters or order.state == is_done]

        (order,) = await wait_until(ended)
    assert list(order.dead_letters) == dead_letters


@pytest.mark.usefixtures("_short_intervals")
async def test_methods_that_are_not_implemented_for_a_moment_are_called_again(
    backlog: Backlog, peers: FakePeers, start: Start
) -> None:
    missing = Unimplemented("no route")
    peers.ordered_cart.faults["RemoveOrdered"] = Fault(missing, times=1)
    peers.email.faults["SendOrderConfirmation"] = Fault(missing, times=3)
    await backlog.shipped(*orders(1))
    async with start() as checkout:
        await checkout.until_done(1)
    assert (peers.ordered_cart.calls["RemoveOrdered"], peers.email.calls["SendOrderConfirmation"]) == (2, 4)
    # It would leave the ordered items in a cart that has changed.
    assert peers.cart.calls["EmptyCart"] == 0


@pytest.mark.usefixtures("_short_intervals")
async def test_recovery_only_probes_while_shipping_is_down(backlog: Backlog, peers: FakePeers, start: Start) -> None:
    peers.shipping.faults["ShipOrder"] = Fault(Unavailable("down"))
    await backlog.charged(*orders())
    async with start() as checkout:
        await wait_until(lambda: peers.shipping.calls["ShipOrder"] > 2 * queue_workers.CONCURRENCY)
        assert peers.shipping.calls["ShipOrder"] < BACKLOG
        peers.shipping.faults.clear()
        await checkout.until_done(BACKLOG)


async def test_an_order_that_always_fails_does_not_delay_the_recovery_of_new_ones(
    backlog: Backlog, peers: FakePeers, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_workers, "_FIRST_PAUSE_SECONDS", 600.0)
    monkeypatch.setattr(recovery, "retry_delay_seconds", lambda _failures: 0.0)
    peers.shipping.failing_city = "Nowhere"
    await backlog.charged(new_order("failing", address=Address("Main 1", "Nowhere", "", "Germany", 10115)))
    async with start() as checkout:
        await wait_until(lambda: peers.shipping.calls["ShipOrder"] == 6)
        await backlog.charged(new_order("new"))
        await checkout.until_done(1)
    assert "ann@mail.example" in {mail.email for mail in peers.email.sent}


async def test_finished_orders_are_deleted_after_the_retention_time(
    backlog: Backlog, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "_TURN_SECONDS", 0.05)
    (entry,) = orders(1)
    await backlog.shipped(entry)
    async with start(retention_days=1e-6):
        await wait_for_result(lambda: backlog.journal.read(entry.order_id), lambda record: record is None)
