"""Collect the evidence after a run: wait until checkout is idle, read the ledgers, repeat every placed order."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from chassis import errors
from chassis.wire import money_from_wire
from shop_cli.prove.customer_plan import Intent
from shop_cli.prove.customers import CustomerResult, CustomerSimulator
from shop_cli.prove.evidence import (
    CartEvidence,
    ClientOutcome,
    Evidence,
    JournalRecord,
    OrderEvidence,
    OrderResponse,
)
from shop_cli.prove.ledgers import Ledgers, match_ledgers, read_charges, read_manifest
from shop_cli.prove.shop_under_test import ShopUnderTest
from shop_internal.orders_pb2 import GetOrderRequest, ListOrdersRequest, OrderState
from shop_internal.orders_pb2_grpc import OrderJournalStub

QUIET_SECONDS = 30.0
_MAX_CONCURRENT = 16
_UNFINISHED = (OrderState.ORDER_STATE_CHARGING, OrderState.ORDER_STATE_SHIPPED, OrderState.ORDER_STATE_VOIDING)

A = TypeVar("A")
B = TypeVar("B")


async def wait_until_quiet(journal: OrderJournalStub) -> float | None:
    """Wait until no order is unfinished and return the seconds that this took, None on timeout."""
    started = time.monotonic()
    while time.monotonic() - started < QUIET_SECONDS:
        try:
            unfinished = await journal.ListOrders(ListOrdersRequest(states=_UNFINISHED, limit=1))
        except errors.DomainError:
            await asyncio.sleep(0.2)
            continue
        if not unfinished.orders:
            return time.monotonic() - started
        await asyncio.sleep(0.1)
    return None


async def collect_evidence(
    shop: ShopUnderTest,
    simulator: CustomerSimulator,
    journal: OrderJournalStub | None,
    results: Iterable[CustomerResult],
    quiet_seconds: float | None,
) -> Evidence:
    """Collect the evidence about every order and cart. Without a journal no order is repeated."""
    by_number = sorted(results, key=lambda result: result.customer.intents[0].number)
    responses = {number: response for result in by_number for number, response in result.responses.items()}
    intents = [intent for result in by_number for intent in result.customer.intents]
    known_carts = [result for result in by_number if result.cart_known]
    carts = await _gather_limited(known_carts, lambda result: _cart_evidence(simulator, result))
    charges, shipments = read_charges(shop.payment_url), read_manifest(shop.shipping_url)
    ledgers = match_ledgers(intents, charges, shipments, shop.outbox, shop.hmac_key)

    async def order_evidence(intent: Intent) -> OrderEvidence:
        return await _order_evidence(intent, responses[intent.number], ledgers, simulator, journal)

    orders = await _gather_limited(intents, order_evidence)
    return Evidence(tuple(orders), tuple(carts), quiet_seconds, ledgers.unmatched_entries)


async def _gather_limited(items: Iterable[A], work: Callable[[A], Awaitable[B]]) -> list[B]:
    slots = asyncio.Semaphore(_MAX_CONCURRENT)

    async def run(item: A) -> B:
        async with slots:
            return await work(item)

    return await asyncio.gather(*map(run, items))


async def _cart_evidence(simulator: CustomerSimulator, result: CustomerResult) -> CartEvidence:
    contents = await simulator.cart_contents(result.customer.user_id)
    return CartEvidence(result.customer, result.added, result.added_late, contents)


async def _order_evidence(
    intent: Intent,
    response: OrderResponse,
    ledgers: Ledgers,
    simulator: CustomerSimulator,
    journal: OrderJournalStub | None,
) -> OrderEvidence:
    number = intent.number
    confirmations = ledgers.confirmations.get(number, ())
    journal_record = repeated = None
    if journal is not None:
        order_id = response.order.order_id if response.order else confirmations[0].order_id if confirmations else None
        journal_record = await _journal_record(journal, order_id) if order_id else None
        if response.outcome is ClientOutcome.PLACED and intent.key:
            repeated = await simulator.repeat_order(intent, QUIET_SECONDS)
    return OrderEvidence(
        intent,
        response,
        ledgers.charges.get(number, ()),
        ledgers.shipments.get(number, ()),
        confirmations,
        journal_record,
        repeated,
    )


async def _journal_record(journal: OrderJournalStub, order_id: str) -> JournalRecord | None:
    deadline = time.monotonic() + QUIET_SECONDS
    while True:
        try:
            order = (await journal.GetOrder(GetOrderRequest(order_id=order_id))).order
            break
        except errors.NotFound:
            return None
        except errors.Unavailable:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.1)
    state = OrderState.Name(order.state).removeprefix("ORDER_STATE_")
    return JournalRecord(state, money_from_wire(order.total))
