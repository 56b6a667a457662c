"""Runs a plan and checks its outcome."""

import asyncio
import gc
import logging
import sys
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from email import message_from_bytes, policy
from typing import Any

import structlog

from chassis import errors
from shop_internal.orders_pb2 import RequeueNotificationsRequest
from shop_internal.orders_pb2_grpc import OrderJournalStub
from shop_kit.charges import CHARGES, charge_from_row
from shop_lab.simulation import services
from shop_lab.simulation.clock import VirtualLoop, deterministic, run_to_end
from shop_lab.simulation.customers import SimulatedCustomer
from shop_lab.simulation.invariants import Outcome, violations_of
from shop_lab.simulation.plan import CALM_AT, CHECKOUTS, CallFault, LostCommits, Plan, Refusals, intents_of
from shop_lab.simulation.processes import create_task
from shop_lab.simulation.simulated_shop import SimulatedShop
from shop_lab.world.customer_calls import PATIENCE_SECONDS
from shop_lab.world.customer_plan import Intent
from shop_lab.world.customers import CustomerResult
from shop_lab.world.evidence import CartEvidence, ClientOutcome, Evidence
from shop_lab.world.ledgers import (
    ORDERS,
    SHIPMENTS,
    Ledgers,
    match_ledgers,
    parse_confirmation,
    records_by_recipient,
    shipment_from_row,
)

# Two jumps of a clock can leave a lease ahead by the most that still counts as set by a worker: ten minutes.
_QUIET_SECONDS = 1_000.0
_IDLE_SECONDS = 0.25
_IDLE_CHECKS = 2
_OPEN = "SELECT order_id, state FROM orders WHERE state IN ('CHARGING', 'VOIDING', 'SHIPPED') ORDER BY order_id"
_DEAD = "SELECT DISTINCT order_id FROM outbox WHERE dead_at IS NOT NULL ORDER BY order_id"


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


def run(plan: Plan) -> Report:
    """Simulate a plan. The same plan gives the same report."""
    loop = VirtualLoop()
    loop.set_task_factory(create_task)
    collecting = gc.isenabled()
    gc.disable()
    try:
        trace: list[str] = []
        with deterministic(loop, plan.seed), _errors_in_trace(trace):
            return run_to_end(loop, _run(plan, loop, trace))
    finally:
        if collecting:
            gc.enable()


async def _run(plan: Plan, loop: VirtualLoop, trace: list[str]) -> Report:
    shop = SimulatedShop(plan, loop, trace)
    shop.start_all()
    refusals = any(isinstance(fault, Refusals) for fault in plan.faults)
    clients = [SimulatedCustomer(shop.network, refusals=refusals) for _ in plan.customers]
    visits = [
        asyncio.create_task(client.run(customer), name=customer.user_id)
        for client, customer in zip(clients, plan.customers, strict=True)
    ]
    await _wait_until_calm(shop, visits)
    shop.end_faults()
    results = [await visit for visit in visits]
    unfinished = await _wait_until_quiet(shop)
    outcome = await _collect(shop, clients, results, unfinished)
    violations = [*violations_of(outcome), *(f"S2: {error}" for error in loop.errors)]
    shop.record(f"violations: {violations}")
    shop.stop_all()
    await asyncio.sleep(0.001)
    return Report(plan, tuple(violations), tuple(shop.trace), tuple(shop.chances.injected), shop.stranded)


async def _wait_until_calm(shop: SimulatedShop, visits: list[asyncio.Task[CustomerResult]]) -> None:
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
    shop: SimulatedShop, clients: list[SimulatedCustomer], results: list[CustomerResult], unfinished: tuple[str, ...]
) -> Outcome:
    intents = intents_of(shop.plan)
    ledgers = _ledgers(shop, intents)
    records = records_by_recipient(shop.journal.query(ORDERS))
    orders, carts = [], []
    for client, result in zip(clients, results, strict=True):
        for intent in result.customer.intents:
            response = result.responses[intent.number]
            placed = response.outcome is ClientOutcome.PLACED
            repeated = await client.repeat_order(intent, PATIENCE_SECONDS) if placed and intent.key else None
            orders.append(ledgers.evidence_of(intent, response, records[intent.email], repeated))
        if result.cart_known:
            contents = await client.cart_contents(result.customer.user_id)
            carts.append(CartEvidence(result.customer, result.added, contents))
    lossy = any(isinstance(fault, LostCommits) for fault in shop.plan.faults)
    evidence = Evidence(tuple(orders), tuple(carts), 0.0, ledgers.unmatched_entries, journal_loses_commits=lossy)
    return Outcome(evidence, unfinished)


def _ledgers(shop: SimulatedShop, intents: list[Intent]) -> Ledgers:
    """Match the entries of all ledgers to orders."""
    confirmations = [
        parse_confirmation(message_from_bytes(message.content, policy=policy.default))
        for message in shop.spool.messages.values()
    ]
    return match_ledgers(
        intents,
        [charge_from_row(row) for row in shop.ledger.query(CHARGES)],
        [shipment_from_row(*row) for row in shop.manifest.query(SHIPMENTS)],
        confirmations,
        services.HMAC_KEY.encode(),
    )
