"""Backlogs are worked off at once, and what fails every time delays nothing else."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from chassis.errors import Internal, Unavailable, Unimplemented
from chassis.rpc.wire import money_to_wire
from chassis.sql import retention
from checkout_service import outbox, queue_workers, recovery
from checkout_service.domain import State, Transition
from checkout_service.journal import sql
from checkout_service.journal.opening import open_journal
from checkout_service.ports import EMAIL, Entry, Journal, JournalUnavailable
from checkout_service.queue_workers import CircuitBreaker, Circuits, PollTimer, QueueWorker
from shop import payment_pb2
from shop_internal import orders_pb2
from shop_kit.waiting import wait_until
from shop_lab.world.fake_peers import FakePeers, Fault

Make = Callable[..., Entry]
Checkout = Any
Start = Callable[..., Any]

BACKLOG = 300


class Clock:
    """Replaces the clock of circuit breakers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds = 0.0
        monkeypatch.setattr(CircuitBreaker, "_now", lambda _: self.seconds)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def opened() -> CircuitBreaker:
    circuit = CircuitBreaker("peer")
    for _ in range(5):
        circuit.record_failure()
    return circuit


@pytest.mark.usefixtures("clock")
def test_a_closed_circuit_admits_everything() -> None:
    assert CircuitBreaker("peer").admit(16) == 16


@pytest.mark.usefixtures("clock")
def test_failures_in_a_row_open_the_circuit() -> None:
    assert opened().admit(16) == 0


def test_an_open_circuit_admits_one_probe_after_a_pause(clock: Clock) -> None:
    circuit = opened()
    clock.seconds = 1.0
    assert (circuit.admit(16), circuit.admit(16)) == (1, 0)


def test_the_pause_between_probes_grows_to_a_minute(clock: Clock) -> None:
    circuit, probed_at = opened(), 0.0
    pauses: list[float] = []
    while len(pauses) < 8:
        clock.seconds += 0.5
        if circuit.admit(1):
            circuit.record_failure()
            circuit.release(1)
            pauses.append(clock.seconds - probed_at)
            probed_at = clock.seconds
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]


def test_a_probe_that_was_not_used_is_admitted_again(clock: Clock) -> None:
    circuit = opened()
    clock.seconds = 1.0
    circuit.admit(1)
    circuit.release(1)
    assert circuit.admit(1) == 1


@pytest.mark.usefixtures("clock")
def test_one_success_closes_the_circuit() -> None:
    circuit = opened()
    circuit.record_success()
    assert circuit.admit(16) == 16


def test_results_of_calls_that_began_earlier_do_not_delay_the_probe(clock: Clock) -> None:
    circuit = CircuitBreaker("peer")
    circuit.admit(16)
    for _ in range(16):
        circuit.record_failure()
    circuit.release(16)
    clock.seconds = 1.0
    assert circuit.admit(16) == 1


@pytest.mark.usefixtures("clock")
def test_items_that_failed_before_do_not_open_the_circuit_of_new_ones() -> None:
    circuits = Circuits("peer")
    for _ in range(5):
        circuits.record_failure(failed=True)
    assert (circuits.of(failed=True).admit(16), circuits.of(failed=False).admit(16)) == (0, 16)


@pytest.mark.usefixtures("clock")
def test_the_success_of_a_first_attempt_closes_both_circuits() -> None:
    circuits = Circuits("peer")
    for failed in [False, True] * 5:
        circuits.record_failure(failed=failed)
    circuits.record_success(failed=False)
    assert (circuits.of(failed=True).open, circuits.of(failed=False).open) == (False, False)


async def test_a_worker_works_on_a_limited_number_of_items() -> None:
    in_progress, most, left = 0, 0, 100

    async def claim(limit: int) -> Sequence[int]:
        nonlocal left
        claimed = min(limit, left)
        left -= claimed
        return range(claimed)

    async def work(_item: int) -> bool:
        nonlocal in_progress, most
        in_progress += 1
        most = max(most, in_progress)
        await asyncio.sleep(0)
        in_progress -= 1
        return True

    worker = asyncio.create_task(QueueWorker(PollTimer(), Circuits("peer"), False, claim, work).run())
    await wait_until(lambda: left == 0 and in_progress == 0)
    worker.cancel()
    assert most == queue_workers.CONCURRENCY


async def test_a_worker_continues_after_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_workers, "POLL_SECONDS", 0.01)
    claims: list[Any] = [JournalUnavailable("down"), [1], [2], [3]]
    worked = []

    async def claim(_limit: int) -> Sequence[int]:
        found: Any = claims.pop(0) if claims else []
        if isinstance(found, Exception):
            raise found
        return list(found)

    async def work(item: int) -> bool:
        worked.append(item)
        if item < 3:
            raise [JournalUnavailable("down"), ValueError("a defect")][item - 1]
        return True

    worker = asyncio.create_task(QueueWorker(PollTimer(), Circuits("peer"), False, claim, work).run())
    await wait_until(lambda: worked == [1, 2, 3])
    worker.cancel()


async def test_work_that_hangs_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_workers, "_WORK_WITHIN_SECONDS", 0.01)
    monkeypatch.setattr(queue_workers, "POLL_SECONDS", 0.01)
    left = 3 * queue_workers.CONCURRENCY

    async def claim(limit: int) -> Sequence[int]:
        nonlocal left
        claimed = min(limit, left)
        left -= claimed
        return range(claimed)

    async def work(_item: int) -> bool:
        await asyncio.Event().wait()
        return True

    monkeypatch.setattr(queue_workers, "_FAILURES_TO_OPEN", 1000)
    worker = asyncio.create_task(QueueWorker(PollTimer(), Circuits("peer"), False, claim, work).run())
    await wait_until(lambda: left == 0)
    worker.cancel()


async def test_workers_have_their_turns_at_the_same_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_workers, "POLL_SECONDS", 0.01)
    turns, moments = PollTimer(), 0

    async def wait_and_count() -> None:
        nonlocal moments
        await turns.wait()
        moments += 1

    first = [asyncio.create_task(wait_and_count()) for _ in range(8)]
    await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
    assert moments == len(first)


# Backlogs


@pytest.fixture
async def journal(database_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Journal]:
    """The journal in which tests prepare a backlog: outbox items are due at once."""
    monkeypatch.setattr(sql, "OUTBOX_LEASE_SECONDS", -1)
    async with open_journal(database_url, worker="before") as opened:
        yield opened


@pytest.fixture
def _one_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a worker that waits between two claims take far too long."""
    monkeypatch.setattr(queue_workers, "POLL_SECONDS", 600.0)


async def charging(journal: Journal, peers: FakePeers, new: Entry) -> None:
    """Record an order whose worker died after the charge."""
    await journal.insert(new)
    await journal.release(new.claim, delay_seconds=-1, reason="")
    peers.payment.ledger[new.claim.charge_key] = "charged"
    peers.payment.requests[new.claim.charge_key] = payment_pb2.ChargeRequest(amount=money_to_wire(new.order.total))


async def shipped(journal: Journal, new: Entry) -> None:
    """Record an order whose worker died after it was shipped."""
    await journal.insert(new)
    await journal.update(new.claim, Transition(State.CHARGING, State.SHIPPED, "transaction", "track"))


async def until_done(checkout: Checkout, count: int) -> None:
    request = orders_pb2.ListOrdersRequest(states=[orders_pb2.ORDER_STATE_DONE], limit=1000)

    async def done() -> bool:
        return len((await checkout.journal.ListOrders(request)).orders) >= count

    await wait_until(done)


@pytest.mark.usefixtures("_one_turn")
async def test_a_backlog_of_notifications_is_sent_without_a_pause(
    journal: Journal, peers: FakePeers, start: Start, new_order: Make
) -> None:
    await asyncio.gather(*(shipped(journal, new_order(f"{number}")) for number in range(BACKLOG)))
    async with start() as checkout:
        await until_done(checkout, BACKLOG)
    assert len(peers.email.sent) == BACKLOG


@pytest.mark.usefixtures("_one_turn")
async def test_a_backlog_of_orders_is_recovered_without_a_pause(
    journal: Journal, peers: FakePeers, start: Start, new_order: Make
) -> None:
    await asyncio.gather(*(charging(journal, peers, new_order(f"{number}")) for number in range(BACKLOG)))
    async with start() as checkout:
        await until_done(checkout, BACKLOG)
    assert len(peers.shipping.shipments) == BACKLOG


async def test_confirmations_that_hang_do_not_delay_carts(
    journal: Journal, peers: FakePeers, start: Start, new_order: Make
) -> None:
    peers.email.hold("SendOrderConfirmation")
    await asyncio.gather(*(shipped(journal, new_order(f"{number}")) for number in range(BACKLOG)))
    async with start():
        await wait_until(lambda: peers.ordered_cart.calls["RemoveOrdered"] == BACKLOG)
    assert peers.email.calls["SendOrderConfirmation"] <= 2 * queue_workers.CONCURRENCY


async def test_confirmations_that_failed_before_do_not_delay_new_ones(
    journal: Journal, peers: FakePeers, start: Start, new_order: Make
) -> None:
    peers.email.hanging_address = "hopeless@mail.example"
    hopeless = (new_order(f"{number}", email=peers.email.hanging_address) for number in range(100))
    await asyncio.gather(*(shipped(journal, new) for new in hopeless))
    for item in await journal.claim_outbox(EMAIL, 100, failed=False):
        await journal.postpone(item, delay_seconds=-1, reason="TIMEOUT")
    await shipped(journal, new_order("new"))
    async with start():
        await wait_until(lambda: [mail.email for mail in peers.email.sent] == ["ann@mail.example"])


# Failures


@pytest.fixture
def _short_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_workers, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(queue_workers, "_FIRST_PAUSE_SECONDS", 0.1)
    monkeypatch.setattr(queue_workers, "_LONGEST_PAUSE_SECONDS", 0.1)
    monkeypatch.setattr(outbox, "retry_delay_seconds", lambda _failures: -1.0)


@pytest.mark.usefixtures("_short_intervals")
async def test_items_are_not_tried_one_by_one_while_their_peer_is_down(
    journal: Journal, peers: FakePeers, start: Start, new_order: Make
) -> None:
    peers.email.faults["SendOrderConfirmation"] = Fault(Unavailable("down"))
    await asyncio.gather(*(shipped(journal, new_order(f"{number}")) for number in range(BACKLOG)))
    async with start() as checkout:
        await wait_until(lambda: peers.ordered_cart.calls["RemoveOrdered"] == BACKLOG)
        calls = peers.email.calls["SendOrderConfirmation"]
        await wait_until(lambda: peers.email.calls["SendOrderConfirmation"] >= calls + 3)
        assert peers.email.calls["SendOrderConfirmation"] < BACKLOG
        peers.email.faults.clear()
        await until_done(checkout, BACKLOG)


@pytest.mark.usefixtures("_short_intervals")
async def test_an_outage_makes_no_dead_letters(
    journal: Journal, peers: FakePeers, start: Start, new_order: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "MAX_FAILURES", 10)
    peers.email.faults["SendOrderConfirmation"] = Fault(Unavailable("down"), times=50)
    await shipped(journal, new_order())
    async with start() as checkout:
        await until_done(checkout, 1)
    assert len(peers.email.sent) == 1


@pytest.mark.usefixtures("_short_intervals")
async def test_an_item_that_fails_too_often_is_a_dead_letter(
    journal: Journal, peers: FakePeers, start: Start, new_order: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "MAX_FAILURES", 2)
    peers.email.faults["SendOrderConfirmation"] = Fault(Internal("broken"))
    new = new_order()
    await shipped(journal, new)
    order_id = new.order.order_id
    async with start():

        async def dead() -> bool:
            return (await journal.dead_letters_of([order_id]))[order_id] == [EMAIL]

        await wait_until(dead)


@pytest.mark.usefixtures("_short_intervals")
async def test_methods_that_are_not_implemented_for_a_moment_are_called_again(
    journal: Journal, peers: FakePeers, start: Start, new_order: Make
) -> None:
    missing = Unimplemented("no route")
    peers.ordered_cart.faults["RemoveOrdered"] = Fault(missing, times=1)
    peers.email.faults["SendOrderConfirmation"] = Fault(missing, times=3)
    await shipped(journal, new_order())
    async with start() as checkout:
        await until_done(checkout, 1)
    assert (peers.ordered_cart.calls["RemoveOrdered"], peers.email.calls["SendOrderConfirmation"]) == (2, 4)
    # It would leave the ordered items in a cart that has changed.
    assert peers.cart.calls["EmptyCart"] == 0


async def test_recovery_is_limited_to_probes_while_shipping_is_down(
    journal: Journal, peers: FakePeers, start: Start, new_order: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_workers, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(queue_workers, "_FIRST_PAUSE_SECONDS", 0.1)
    monkeypatch.setattr(queue_workers, "_LONGEST_PAUSE_SECONDS", 0.1)
    peers.shipping.faults["ShipOrder"] = Fault(Unavailable("down"))
    await asyncio.gather(*(charging(journal, peers, new_order(f"{number}")) for number in range(BACKLOG)))
    async with start() as checkout:
        await wait_until(lambda: peers.shipping.calls["ShipOrder"] > 2 * queue_workers.CONCURRENCY)
        assert peers.shipping.calls["ShipOrder"] < BACKLOG
        peers.shipping.faults.clear()
        await until_done(checkout, BACKLOG)


async def test_an_order_that_always_fails_does_not_delay_the_recovery_of_new_ones(
    journal: Journal, peers: FakePeers, start: Start, new_order: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_workers, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(queue_workers, "_FIRST_PAUSE_SECONDS", 600.0)
    monkeypatch.setattr(recovery, "retry_delay_seconds", lambda _failures: 0.0)
    peers.shipping.failing_city = "Nowhere"
    failing = new_order("failing")
    address = replace(failing.order.address, city="Nowhere")
    await charging(journal, peers, replace(failing, order=replace(failing.order, address=address)))
    async with start() as checkout:
        await wait_until(lambda: peers.shipping.calls["ShipOrder"] == 6)
        await charging(journal, peers, new_order("new"))
        await until_done(checkout, 1)


# Retention


async def test_finished_orders_are_deleted_after_the_retention_time(
    journal: Journal, start: Start, new_order: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "_TURN_SECONDS", 0.05)
    new = new_order()
    await shipped(journal, new)
    async with start(retention_days=1e-6):

        async def deleted() -> bool:
            return await journal.read(new.order.order_id) is None

        await wait_until(deleted)
