"""The end of a simulation: wait until all orders are settled, collect the evidence, check the invariants."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from email import message_from_bytes, policy
from functools import partial

from chassis.background import in_background
from shop_internal.orders_pb2_grpc import OrderJournalStub
from shop_kit.charges import CHARGES, charge_from_row
from shop_lab.simulation.services import HMAC_KEY
from shop_lab.simulation.simulated_shop import CHECKOUTS, SimulatedShop
from shop_lab.world.customer_calls import PATIENCE_SECONDS
from shop_lab.world.customers import CustomerResult, CustomerSimulator
from shop_lab.world.evidence import FLAGGED, Evidence
from shop_lab.world.evidence_collector import find_contradictions, intents_of, match_orders, read_carts, repeat_orders
from shop_lab.world.invariants import check_invariants
from shop_lab.world.ledgers import (
    ORDERS,
    SHIPMENTS,
    match_ledgers,
    parse_confirmation,
    records_by_recipient,
    shipment_from_row,
)
from shop_lab.world.operators import requeue_dead_letters

# Two jumps of a clock can leave a lease ahead by the most that still counts as set by a worker: ten minutes.
_QUIET_SECONDS = 1_000.0
_FAULTY_SECONDS = 6.0
_OPEN = (
    "SELECT order_id, state FROM orders WHERE state IN ('CHARGING', 'VOIDING', 'SETTLING', 'SHIPPED') ORDER BY order_id"
)
_OF_MANY_ORDERS = "I9"


async def violations_in_the_end(
    shop: SimulatedShop, simulator: CustomerSimulator, visits: Sequence[asyncio.Task[CustomerResult]]
) -> list[str]:
    """End the faults soon, wait until nothing is left to do, and return the violations of the invariants."""
    await _wait_until_idle(shop, visits)
    shop.end_faults()
    operator = OrderJournalStub(shop.network.channel(CHECKOUTS[0], 5.0))
    async with in_background(partial(requeue_dead_letters, operator)):
        results = [await visit for visit in visits]
        await asyncio.gather(*shop.operators)
        quiet_seconds = await _wait_until_quiet(shop)
    evidence = replace(await _evidence(shop, simulator, results), quiet_seconds=quiet_seconds)
    return [
        f"{invariant.name}: {violation}"
        for invariant in check_invariants(evidence)
        for violation in invariant.violations
        if invariant.name != _OF_MANY_ORDERS
    ]


async def _wait_until_idle(shop: SimulatedShop, visits: Sequence[asyncio.Task[CustomerResult]]) -> None:
    """Wait until nothing is left that faults could affect, but for a few seconds only."""
    until = shop.now() + _FAULTY_SECONDS
    while shop.now() < until:
        if all(visit.done() for visit in visits) and shop.is_idle() and not shop.disks["checkout"].query(_OPEN):
            return
        await asyncio.sleep(0.25)


async def _wait_until_quiet(shop: SimulatedShop) -> float | None:
    """Wait until no order is open and no request is late; return the seconds that this took, None if some stay open."""
    started = shop.now()
    while shop.disks["checkout"].query(_OPEN) or not shop.network.is_idle():
        if shop.now() > started + _QUIET_SECONDS:
            return None
        await asyncio.sleep(0.5)
    return shop.now() - started


async def _evidence(shop: SimulatedShop, simulator: CustomerSimulator, results: Sequence[CustomerResult]) -> Evidence:
    repeated = await repeat_orders(simulator, results, PATIENCE_SECONDS)
    carts = await read_carts(simulator, results)
    messages = (message_from_bytes(message.content, policy=policy.default) for message in shop.spool.messages.values())
    ledgers = match_ledgers(
        intents_of(results),
        [charge_from_row(row) for row in shop.disks["payment"].query(CHARGES)],
        [shipment_from_row(*row) for row in shop.disks["shipping"].query(SHIPMENTS)],
        [parse_confirmation(message) for message in messages],
        HMAC_KEY.encode(),
    )
    orders = match_orders(ledgers, records_by_recipient(shop.disks["checkout"].query(ORDERS)), results, repeated)
    justified = FLAGGED if shop.refuses or shop.operators else frozenset()
    doubled = shop.network.customers_doubled
    orders = tuple(
        replace(order, justified_flags=justified, is_doubled=order.intent.user_id in doubled) for order in orders
    )
    return Evidence(
        orders,
        carts,
        unmatched_entries=ledgers.unmatched_entries,
        contradictions=find_contradictions(simulator, orders),
        unexpected_errors=tuple(shop.errors),
        journal_loses_commits=shop.loses_commits,
    )
