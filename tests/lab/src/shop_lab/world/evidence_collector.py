"""Collect the evidence after a run: wait until checkout is idle, read the ledgers, repeat every placed order."""

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from chassis import errors
from checkout_service.saga import SHIPMENT_IN_DOUBT
from shop_internal.orders_pb2 import ListOrdersRequest, OrderState
from shop_internal.orders_pb2_grpc import OrderJournalStub
from shop_kit.charges import read_charges
from shop_kit.databases import execute
from shop_lab.world.customer_plan import Intent
from shop_lab.world.customers import CustomerResult, CustomerSimulator
from shop_lab.world.evidence import (
    NEEDS_REFUND,
    NEEDS_REVIEW,
    CartEvidence,
    ClientOutcome,
    Evidence,
    JournalRecord,
    OrderEvidence,
    OrderResponse,
)
from shop_lab.world.ledgers import (
    ORDERS,
    Ledgers,
    match_ledgers,
    read_confirmations,
    read_manifest,
    records_by_recipient,
)
from shop_lab.world.refusing_peers import DOUBTFUL_SHIPPING, OPERATORS, RefusingPeers
from shop_lab.world.shop_under_test import ShopUnderTest

QUIET_SECONDS = 30.0
_REFUSED = frozenset({"DECLINED", "VOIDED", "ABANDONED", "SETTLED"})
_UNEXPECTED = "Traceback"
# The second one is of gRPC: a fault cut the connection while the response was being sent.
_INJECTED = ("FailpointReached", "ExecuteBatchError raised in core by servicer method")
_MAX_LINE = 400
_UNFINISHED = (
    *(OrderState.ORDER_STATE_CHARGING, OrderState.ORDER_STATE_VOIDING),
    *(OrderState.ORDER_STATE_SETTLING, OrderState.ORDER_STATE_SHIPPED),
)


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
    results: Sequence[CustomerResult],
    quiet_seconds: float | None,
) -> Evidence:
    """Repeat every placed order that has a key, then collect the evidence. Without a journal no order is repeated."""
    repeated: dict[int, OrderResponse] = {}
    if journal is not None:
        repeated = await repeat_orders(simulator, results)
        # A repetition must have no effect, so any effect must be over before the ledgers are read.
        if quiet_seconds is not None and await wait_until_quiet(journal) is None:
            quiet_seconds = None
    carts = await read_carts(simulator, results)
    charges, shipments = read_charges(shop.urls["payment"]), read_manifest(shop.urls["shipping"])
    confirmations = read_confirmations(shop.inbox.messages(), shop.urls["email"])
    ledgers = match_ledgers(intents_of(results), charges, shipments, confirmations, shop.hmac_key)
    records = {} if journal is None else records_by_recipient(execute(shop.urls["checkout"], ORDERS))
    orders = match_orders(ledgers, records, results, repeated)
    return Evidence(
        orders,
        carts,
        quiet_seconds,
        ledgers.unmatched_entries,
        find_contradictions(simulator, orders),
        tuple(_unexpected_errors(shop)),
        has_journal=journal is not None,
    )


def intents_of(results: Iterable[CustomerResult]) -> list[Intent]:
    """Return all orders that customers were going to place."""
    return [intent for result in results for intent in result.customer.intents]


def match_orders(
    ledgers: Ledgers,
    records: Mapping[str, Sequence[JournalRecord]],
    results: Sequence[CustomerResult],
    repeated: Mapping[int, OrderResponse],
) -> tuple[OrderEvidence, ...]:
    """Return the evidence about all orders.

    Args:
        records: the journal's, by recipient.
        repeated: the responses to repeated requests by order number.
    """
    responses = _responses(results)

    def evidence_of(intent: Intent) -> OrderEvidence:
        number, response, candidates = intent.number, responses[intent.number], records.get(intent.email, ())
        record = _record_of(response, candidates)
        return OrderEvidence(
            intent,
            response,
            ledgers.charges.get(number, ()),
            ledgers.shipments.get(number, ()),
            ledgers.confirmations.get(number, ()),
            record,
            repeated.get(number),
            further_records=tuple(other for other in candidates if other is not record and other.state not in _REFUSED),
        )

    return tuple(map(evidence_of, intents_of(results)))


def _record_of(response: OrderResponse, records: Sequence[JournalRecord]) -> JournalRecord | None:
    """Return the record of the order in the response, without one a record that was not refused, if there is one."""
    if response.order is not None:
        return next((record for record in records if record.order_id == response.order.order_id), None)
    return max(records, key=lambda record: record.state not in _REFUSED, default=None)


def with_justified_flags(evidence: Evidence, peers: RefusingPeers) -> Evidence:
    """Add which orders may be left to operators, because a peer has refused what would have settled them."""
    orders = [replace(order, justified_flags=frozenset(_justified_flags(order, peers))) for order in evidence.orders]
    return replace(evidence, orders=tuple(orders))


def _justified_flags(order: OrderEvidence, peers: RefusingPeers) -> Iterator[str]:
    order_ids = {record.order_id for record in order.records}
    in_doubt = peers.refused[DOUBTFUL_SHIPPING] and any(
        record.reason == SHIPMENT_IN_DOUBT.reason for record in order.records
    )
    if in_doubt or order_ids & peers.refused[OPERATORS]:
        yield NEEDS_REVIEW
    if order_ids & peers.refused["payment-internal"]:
        yield NEEDS_REFUND


def _responses(results: Iterable[CustomerResult]) -> dict[int, OrderResponse]:
    return {number: response for result in results for number, response in result.responses.items()}


async def repeat_orders(
    simulator: CustomerSimulator, results: Sequence[CustomerResult], patience_seconds: float = QUIET_SECONDS
) -> dict[int, OrderResponse]:
    """Repeat the requests with a key that were answered with an order; return the responses by order number."""
    responses = _responses(results)
    return {
        intent.number: await simulator.repeat_order(intent, patience_seconds)
        for intent in intents_of(results)
        if intent.key and responses[intent.number].outcome is ClientOutcome.PLACED
    }


async def read_carts(simulator: CustomerSimulator, results: Iterable[CustomerResult]) -> tuple[CartEvidence, ...]:
    """Read the carts of which it is known what was added to them."""
    carts = [
        CartEvidence(result.customer, result.added, await simulator.cart_contents(result.customer.user_id))
        for result in results
        if result.cart_known
    ]
    return tuple(carts)


def find_contradictions(simulator: CustomerSimulator, orders: Iterable[OrderEvidence]) -> tuple[str, ...]:
    """Return the histories that are not linearizable.

    Without the carts of which an unanswered request may have bought anything: their sums are checked.
    """
    intents = [order.intent for order in orders]
    uncertain = [order.intent for order in orders if order.has_unanswered_request]
    user_ids = {intent.user_id for intent in intents} - {intent.user_id for intent in uncertain}
    keys = {intent.key for intent in intents if intent.key}
    return tuple(simulator.histories.contradictions(sorted(user_ids), sorted(keys)))


def _unexpected_errors(shop: ShopUnderTest) -> Iterator[str]:
    for process in shop.processes:
        for line in process.log_path.read_text(encoding="utf-8", errors="replace").splitlines():
            if _UNEXPECTED in line and not any(text in line for text in _INJECTED):
                yield f"{process.name}: {line[:_MAX_LINE]}"
