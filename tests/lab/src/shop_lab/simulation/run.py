"""Runs a plan and checks its outcome."""

import asyncio
import gc
import logging
import sys
from collections import defaultdict
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from email import message_from_bytes, policy
from typing import Any

import structlog

from chassis import errors
from chassis.values.money import Money
from shop_internal.orders_pb2 import RequeueNotificationsRequest
from shop_internal.orders_pb2_grpc import OrderJournalStub
from shop_lab.simulation import services
from shop_lab.simulation.clock import VirtualLoop, deterministic, run_to_end
from shop_lab.simulation.customers import CustomerClient, ShopperResult
from shop_lab.simulation.invariants import FLAGGED, Outcome, violations_of
from shop_lab.simulation.plan import CALM_AT, CHECKOUTS, CallFault, LostCommits, Plan, Refusals, intents_of
from shop_lab.simulation.processes import create_task
from shop_lab.simulation.recording import Recorder
from shop_lab.simulation.simulated_shop import SimulatedShop
from shop_lab.world.customer_plan import Customer, Intent
from shop_lab.world.evidence import (
    CartEvidence,
    ClientOutcome,
    Confirmation,
    Evidence,
    JournalRecord,
    OrderEvidence,
    OrderResponse,
    Shipment,
)
from shop_lab.world.ledgers import parse_confirmation

# Two jumps of a clock can leave a lease ahead by the most that still counts as set by a worker: ten minutes.
_QUIET_SECONDS = 1_000.0
_IDLE_SECONDS = 0.25
_IDLE_CHECKS = 2
_OPEN = "SELECT order_id, state FROM orders WHERE state IN ('CHARGING', 'VOIDING', 'SHIPPED') ORDER BY order_id"
_DEAD = "SELECT DISTINCT order_id FROM outbox WHERE dead_at IS NOT NULL ORDER BY order_id"
_PLACED = frozenset({"SHIPPED", "DONE"})


@dataclass(frozen=True, slots=True)
class Report:
    """A finished run.

    Attributes:
        stranded: the number of leases and due times that a clock, set back, has left far in the future.
    """

    plan: Plan
    violations: tuple[str, ...]
    trace: tuple[str, ...]
    injected: tuple[CallFault, ...]
    stranded: int


@contextmanager
def _errors_in_trace(trace: list[str]) -> Iterator[None]:
    """Log errors to the trace, and nothing else: logs would take more time than the rest of a run."""

    def to_trace(_logger: object, _method: str, event: MutableMapping[str, Any]) -> Any:
        error = repr(sys.exc_info()[1]) if event.get("exc_info") else event.get("reason", "")
        trace.append(f"logged: {event.get('event')} {error}")
        raise structlog.DropEvent

    previous = structlog.get_config()
    structlog.configure([to_trace], wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    try:
        yield
    finally:
        structlog.configure(**previous)


def run(plan: Plan, recorder: Recorder | None = None) -> Report:
    """Simulate a plan. The same plan gives the same report."""
    loop = VirtualLoop()
    loop.set_task_factory(create_task)
    collecting = gc.isenabled()
    gc.disable()
    try:
        trace: list[str] = []
        recording = recorder.recording() if recorder else nullcontext()
        with deterministic(loop, plan.seed), _errors_in_trace(trace), recording:
            return run_to_end(loop, _run(plan, loop, trace, recorder))
    finally:
        if collecting:
            gc.enable()


async def _run(plan: Plan, loop: VirtualLoop, trace: list[str], recorder: Recorder | None) -> Report:
    shop = SimulatedShop(plan, loop, trace)
    if recorder is not None:
        recorder.attach(shop.journal, shop.ledger, shop.manifest)
    shop.start_all()
    refusals = any(isinstance(fault, Refusals) for fault in plan.faults)
    clients = [CustomerClient(shop.network, shopper, refusals=refusals) for shopper in plan.shoppers]
    visits = [asyncio.create_task(client.run(), name=f"customer {index}") for index, client in enumerate(clients)]
    await _wait_until_calm(shop, visits)
    shop.end_faults()
    results = [await visit for visit in visits]
    unfinished = await _wait_until_quiet(shop)
    outcome = await _collect(shop, clients, results, unfinished)
    violations = [*violations_of(outcome), *(f"S3: {error}" for error in loop.errors)]
    shop.record(f"violations: {violations}")
    shop.stop_all()
    await asyncio.sleep(0.001)
    return Report(plan, tuple(violations), tuple(shop.trace), tuple(shop.injected), shop.stranded)


async def _wait_until_calm(shop: SimulatedShop, visits: list[asyncio.Task[ShopperResult]]) -> None:
    """Wait until the faults end, or until nothing is left that they could affect: then only idle loops would run."""
    idle_checks = 0
    while shop.now() < CALM_AT and idle_checks < _IDLE_CHECKS:
        await asyncio.sleep(_IDLE_SECONDS)
        is_idle = all(visit.done() for visit in visits) and shop.is_idle() and not shop.journal.query(_OPEN)
        idle_checks = idle_checks + 1 if is_idle else 0


async def _wait_until_quiet(shop: SimulatedShop) -> tuple[str, ...]:
    """Wait until no order is open, and requeue dead letters, as an operator does."""
    give_up_at = shop.now() + _QUIET_SECONDS
    operator = OrderJournalStub(shop.network.channel(CHECKOUTS[0], 5.0))
    while True:
        for row in shop.journal.query(_DEAD):
            with suppress(errors.DomainError):
                await operator.RequeueNotifications(RequeueNotificationsRequest(order_id=row["order_id"]))
        unfinished = [f"order {row['order_id']} is {row['state']}" for row in shop.journal.query(_OPEN)]
        if not unfinished or shop.now() > give_up_at:
            return tuple(unfinished)
        await asyncio.sleep(0.5)


async def _collect(
    shop: SimulatedShop, clients: list[CustomerClient], results: list[ShopperResult], unfinished: tuple[str, ...]
) -> Outcome:
    responses = {number: response for result in results for number, response in result.responses.items()}
    ledgers = _Ledgers(shop, intents_of(shop.plan))
    orders, carts, flagged = [], [], set()
    for client, result in zip(clients, results, strict=True):
        for visit in result.shopper.visits:
            for intent in visit.intents:
                response = responses[intent.number]
                placed = response.outcome is ClientOutcome.PLACED
                repeated = await client.repeat(intent) if placed and intent.key else None
                orders.append(ledgers.evidence_of(intent, response, repeated))
                if ledgers.states(intent) & FLAGGED:
                    flagged.add(intent.number)
        if result.cart_known:
            customer = Customer(result.shopper.user_id, ())
            carts.append(CartEvidence(customer, result.added, result.added_late, await client.cart_contents()))
    visits = [visit for result in results for visit in result.shopper.visits if len(visit.intents) > 1]
    groups = tuple(tuple(intent.number for intent in visit.intents) for visit in visits)
    evidence = Evidence(tuple(orders), tuple(carts), 0.0, tuple(ledgers.unmatched))
    lossy = any(isinstance(fault, LostCommits) for fault in shop.plan.faults)
    return Outcome(evidence, frozenset(flagged), groups, unfinished, lossy)


class _Ledgers:
    """Entries of all ledgers, by order number."""

    def __init__(self, shop: SimulatedShop, intents: list[Intent]) -> None:
        self.unmatched: list[str] = []
        payment = services.Payment(None)
        cards = {payment.fingerprint(intent): intent.number for intent in intents}
        streets = {intent.street: intent.number for intent in intents}
        self._numbers = {intent.email: intent.number for intent in intents}
        self._charges: dict[int | None, list[Money]] = defaultdict(list)
        self._shipments: dict[int | None, list[Shipment]] = defaultdict(list)
        self._mails: dict[int | None, list[Confirmation]] = defaultdict(list)
        self._journal = shop.journal.query("SELECT * FROM orders ORDER BY order_id")
        for card, amount in services.captured_charges(shop.ledger):
            self._charges[cards.get(card)].append(amount)
        for tracking_id, parcel in services.shipped_parcels(shop.manifest):
            items = {item.product_id: item.quantity for item in parcel.items}
            self._shipments[streets.get(parcel.address.street_address)].append(Shipment(tracking_id, items))
        for message in shop.spool.messages.values():
            confirmation = parse_confirmation(message_from_bytes(message.content, policy=policy.default))
            self._mails[self._numbers.get(message.recipient)].append(confirmation)
        for name, entries in (("charge", self._charges), ("shipment", self._shipments), ("e-mail", self._mails)):
            if None in entries:
                self.unmatched.append(f"a {name} belongs to no order")

    def states(self, intent: Intent) -> frozenset[str]:
        """Return the states of the order's records in the journal: abandoned ones may have a successor."""
        return frozenset(row["state"] for row in self._rows(intent))

    def evidence_of(self, intent: Intent, response: OrderResponse, repeated: OrderResponse | None) -> OrderEvidence:
        """Return the evidence about an order."""
        return OrderEvidence(
            intent,
            response,
            charges=tuple(self._charges.get(intent.number, ())),
            shipments=tuple(self._shipments.get(intent.number, ())),
            confirmations=tuple(self._mails.get(intent.number, ())),
            journal_record=self._record(intent),
            repeated=repeated,
        )

    def _record(self, intent: Intent) -> JournalRecord | None:
        rows = self._rows(intent)
        if not rows:
            return None
        row = next((row for row in rows if row["state"] in _PLACED), rows[-1])
        return JournalRecord(
            row["order_id"], row["state"], Money.of(row["currency_code"], row["total_units"], row["total_nanos"])
        )

    def _rows(self, intent: Intent) -> list[Any]:
        return [row for row in self._journal if row["email"] == intent.email]
