"""Collect the evidence after a run: wait until checkout is idle, read the ledgers, repeat every placed order."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from chassis import errors
from shop_internal.orders_pb2 import ListOrdersRequest, OrderState
from shop_internal.orders_pb2_grpc import OrderJournalStub
from shop_kit.charges import Charge, read_charges
from shop_kit.databases import execute
from shop_lab.world.customers import CustomerResult, CustomerSimulator
from shop_lab.world.evidence import (
    NEEDS_REFUND,
    NEEDS_REVIEW,
    CartEvidence,
    ClientOutcome,
    Confirmation,
    Evidence,
    JournalRecord,
    OrderEvidence,
    OrderResponse,
    Shipment,
)
from shop_lab.world.ledgers import (
    ORDERS,
    match_ledgers,
    read_confirmations,
    read_manifest,
    records_by_recipient,
)
from shop_lab.world.refusing_peers import DOUBTFUL_SHIPPING, RefusingPeers
from shop_lab.world.shop_under_test import ShopUnderTest

QUIET_SECONDS = 30.0
_MAX_CONCURRENT = 16
_UNEXPECTED = "Traceback"
# The second one is of gRPC: a fault cut the connection while the response was being sent.
_INJECTED = ("FailpointReached", "ExecuteBatchError raised in core by servicer method")
_MAX_LINE = 400
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


@dataclass(frozen=True, slots=True)
class LedgerEntries:
    """What the ledgers and the journal contain after a run; `records` are by recipient."""

    charges: Sequence[Charge]
    shipments: Sequence[tuple[str, Shipment]]
    confirmations: Sequence[Confirmation]
    records: Mapping[str, Sequence[JournalRecord]]


async def collect_evidence(
    shop: ShopUnderTest,
    simulator: CustomerSimulator,
    journal: OrderJournalStub | None,
    results: Iterable[CustomerResult],
    quiet_seconds: float | None,
) -> Evidence:
    """Repeat every placed order that has a key, then collect the evidence. Without a journal no order is repeated."""
    by_number = sorted(results, key=lambda result: result.customer.intents[0].number)
    repeated: dict[int, OrderResponse] = {}
    if journal is not None:
        repeated = await repeat_orders(simulator, by_number)
        # A repetition must have no effect, so any effect must be over before the ledgers are read.
        if quiet_seconds is not None and await wait_until_quiet(journal) is None:
            quiet_seconds = None
    carts = await read_carts(simulator, by_number)
    entries = LedgerEntries(
        read_charges(shop.payment_url),
        read_manifest(shop.shipping_url),
        read_confirmations(shop.sent_mails, shop.spool_url),
        {} if journal is None else records_by_recipient(execute(shop.journal_url, ORDERS)),
    )
    orders, unmatched = match_orders(entries, by_number, repeated, shop.hmac_key)
    return Evidence(
        orders,
        carts,
        quiet_seconds,
        unmatched,
        find_contradictions(simulator, orders),
        tuple(_unexpected_errors(shop)),
        has_journal=journal is not None,
    )


def match_orders(
    entries: LedgerEntries,
    results: Sequence[CustomerResult],
    repeated: Mapping[int, OrderResponse],
    hmac_key: bytes,
) -> tuple[tuple[OrderEvidence, ...], tuple[str, ...]]:
    """Return the evidence about all orders, and the entries that belong to none, in words.

    `repeated` are the responses to repeated requests by order number.
    """
    intents = [intent for result in results for intent in result.customer.intents]
    responses = _responses(results)
    ledgers = match_ledgers(intents, entries.charges, entries.shipments, entries.confirmations, hmac_key)
    orders = [
        ledgers.evidence_of(
            intent, responses[intent.number], entries.records.get(intent.email, ()), repeated.get(intent.number)
        )
        for intent in intents
    ]
    return tuple(orders), ledgers.unmatched_entries


def with_justified_flags(evidence: Evidence, peers: RefusingPeers) -> Evidence:
    """Add which orders may be left to operators, because a peer has refused what would have settled them."""
    orders = [replace(order, justified_flags=frozenset(_justified_flags(order, peers))) for order in evidence.orders]
    return replace(evidence, orders=tuple(orders))


def _justified_flags(order: OrderEvidence, peers: RefusingPeers) -> Iterator[str]:
    if order.intent.street in peers.refused[DOUBTFUL_SHIPPING]:
        yield NEEDS_REVIEW
    if {record.order_id for record in order.records} & peers.refused["payment-internal"]:
        yield NEEDS_REFUND


def _responses(results: Iterable[CustomerResult]) -> dict[int, OrderResponse]:
    return {number: response for result in results for number, response in result.responses.items()}


async def repeat_orders(
    simulator: CustomerSimulator, results: Sequence[CustomerResult], patience_seconds: float = QUIET_SECONDS
) -> dict[int, OrderResponse]:
    """Repeat the requests with a key that were answered with an order; return the responses by order number."""
    responses = _responses(results)
    intents = [intent for result in results for intent in result.customer.intents]
    placed = [intent for intent in intents if intent.key and responses[intent.number].outcome is ClientOutcome.PLACED]
    repeated = await _gather_limited(placed, lambda intent: simulator.repeat_order(intent, patience_seconds))
    return {intent.number: response for intent, response in zip(placed, repeated, strict=True)}


async def read_carts(simulator: CustomerSimulator, results: Iterable[CustomerResult]) -> tuple[CartEvidence, ...]:
    """Read the carts of which it is known what was added to them."""
    known = [result for result in results if result.cart_known]
    return tuple(await _gather_limited(known, lambda result: _cart_evidence(simulator, result)))


async def _gather_limited(items: Iterable[A], work: Callable[[A], Awaitable[B]]) -> list[B]:
    slots = asyncio.Semaphore(_MAX_CONCURRENT)

    async def run(item: A) -> B:
        async with slots:
            return await work(item)

    return await asyncio.gather(*map(run, items))


async def _cart_evidence(simulator: CustomerSimulator, result: CustomerResult) -> CartEvidence:
    contents = await simulator.cart_contents(result.customer.user_id)
    return CartEvidence(result.customer, result.added, contents)


def find_contradictions(simulator: CustomerSimulator, orders: Iterable[OrderEvidence]) -> tuple[str, ...]:
    """Return the histories that are not linearizable.

    Without the carts of which an unanswered request may have bought anything: their sums are checked.
    """
    intents = [order.intent for order in orders]
    uncertain = [order.intent for order in orders if order.intent.may_order_again and order.response.tries > 1]
    user_ids = {intent.user_id for intent in intents} - {intent.user_id for intent in uncertain}
    keys = {intent.key for intent in intents if intent.key}
    return tuple(simulator.histories.contradictions(sorted(user_ids), sorted(keys)))


def _unexpected_errors(shop: ShopUnderTest) -> Iterator[str]:
    for process in shop.processes:
        for line in process.log_path.read_text(encoding="utf-8", errors="replace").splitlines():
            if _UNEXPECTED in line and not any(text in line for text in _INJECTED):
                yield f"{process.name}: {line[:_MAX_LINE]}"
