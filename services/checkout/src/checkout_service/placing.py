"""Places orders: finds the existing order or quotes a new one, runs its saga, and waits for the outcome."""

import asyncio
import uuid
from collections.abc import Awaitable
from dataclasses import dataclass, field, replace
from typing import TypeVar

import structlog

from chassis.deadline import remaining_seconds
from chassis.failpoints import Failpoints
from chassis.values.keys import HmacKeys
from chassis.values.money import round_to_minor_unit
from chassis.values.orders import OrderLine
from checkout_service import saga
from checkout_service.domain import Cart, CartEmpty, NothingToPay, Order, order_id_of
from checkout_service.errors import OrderInProgress, QuotesTooSlow, TotalChanged, already_recorded
from checkout_service.executor import Executor, Run
from checkout_service.existing_orders import BeginAgain, ExistingOrders, Outcome, Placed, Replayed, may_begin_again
from checkout_service.failpoints import QUOTED
from checkout_service.journal.sql import Journal
from checkout_service.order_spans import current_traceparent, describe_order, describe_request
from checkout_service.ports import Entry, Quotes
from checkout_service.requests import OrderRequest, fingerprints, require_address, scope_of, scope_of_key, validate
from checkout_service.saga import SagaResult

log = structlog.get_logger()

T = TypeVar("T")

READ_WITHIN_SECONDS = 1.0
# If a call has no deadline, answer it within this time.
ANSWER_WITHIN_SECONDS = 15.0

ANSWER_BEFORE_DEADLINE_SECONDS = 0.1


@dataclass(eq=False)
class OrderPlacer:
    """Places orders, one per scope (see `requests.scope_of`). `hmac_keys` are the keys for request fingerprints."""

    journal: Journal
    quotes: Quotes
    executor: Executor
    hmac_keys: HmacKeys
    failpoints: Failpoints
    _warned_of_etags: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._existing = ExistingOrders(self.journal, self.executor)

    async def place(self, request: OrderRequest) -> Placed | Replayed:
        """Place the requested order. If an earlier call started the order, wait for the outcome.

        Without an idempotency key, the cart's etag serves as the key. Every error is a DomainError. OrderInProgress and
        OrderInFlight mean that the order may still be placed, and so does JournalUnavailable if an earlier call
        recorded the order. OrderNeedsReview, OrderNeedsRefund and OrderSettled mean that the card may have been charged
        and an operator must settle or has settled the order. After any other error, no charge by this call remains.
        """
        remaining = remaining_seconds()
        seconds = ANSWER_WITHIN_SECONDS if remaining is None else remaining - ANSWER_BEFORE_DEADLINE_SECONDS
        answer_by = asyncio.get_running_loop().time() + seconds
        request = replace(request, fingerprints=fingerprints(request, self.hmac_keys), answer_by=answer_by)
        outcome: Outcome = BeginAgain()
        while isinstance(outcome, BeginAgain):
            outcome = await self._place_once(request)
        return outcome

    async def quote(self, request: OrderRequest) -> Order:
        """Return the order that `place` would record, without an id, or raise the error that `place` would raise."""
        request = validate(request, needs_card=False)
        read_until = asyncio.get_running_loop().time() + READ_WITHIN_SECONDS
        cart = await _read(self.quotes.cart(request.user_id), read_until, "the cart")
        return await _read(price("", request, cart, self.quotes), read_until, "prices")

    async def _place_once(self, request: OrderRequest) -> Outcome:
        """Find the request's order, or quote a new order and run its saga: see the first diagram in the README."""
        read_until = asyncio.get_running_loop().time() + READ_WITHIN_SECONDS
        scope = scope_of_key(request) if request.key is not None else None
        before = await self.journal.find(scope) if scope is not None else None
        if before is not None and not may_begin_again(before, request):
            # Don't validate a repeated request: it must get the same response even if validation has become stricter.
            return await self._existing.join(before, request)
        request = validate(request)
        cart = await _read(self.quotes.cart(request.user_id), read_until, "the cart")
        if scope is None:
            scope = self._scope_of_cart(request.user_id, cart)
            before = await self._find_of_cart(request, cart, scope)
            if before is not None and not may_begin_again(before, request):
                return await self._existing.join(before, request)
        new = await self._quote(request, cart, scope, read_until)
        held = new if before is None else await self.journal.reopen(before, new)
        if held is None:  # the existing order has changed, or another order holds the cart
            holder = await self.journal.find_of_cart(request.user_id, new.order.cart_generation)
            return await self._existing.join(holder, request, new=new)
        steps = saga.place() if before is None else saga.charge(resumed=False)
        return await self._outcome_of(self.executor.start(held, steps, request.card), new, request)

    async def _quote(self, request: OrderRequest, cart: Cart, scope: str, read_until: float) -> Entry:
        """Price the cart, and return the new order."""
        order_id = order_id_of(scope)
        describe_request(order_id, request.user_currency, len(cart.lines))
        order = await _read(price(order_id, request, cart, self.quotes), read_until, "prices")
        if request.expected_total is not None and request.expected_total != order.total:
            raise TotalChanged(order.total)
        if asyncio.get_running_loop().time() >= request.answer_by:
            raise QuotesTooSlow("the deadline leaves too little time to place the order; nothing was ordered")
        await self.failpoints.reach(QUOTED)
        return Entry(scope, request.fingerprints[0], order, current_traceparent())

    async def _outcome_of(self, run: Run, new: Entry, request: OrderRequest) -> Outcome:
        """Return the outcome of the run, or of an existing order that has the same scope or cart."""
        describe_order(new.order, attempt=run.entry.attempt, replayed=False)
        result = await run.result(request.answer_by)
        if run.entry.is_placed:
            return Placed(run.entry)
        if result is SagaResult.UNFINISHED:
            raise OrderInProgress(new.order_id)
        with already_recorded(new.order_id):
            existing = run.preceded_by or await self.journal.read(new.order_id)
        if existing is None:
            raise OrderInProgress(new.order_id)
        if result is SagaResult.ENDED:  # the card or the shipment was refused
            return await self._existing.join(existing, request, replayed=False)
        if existing.scope == new.scope and may_begin_again(existing, request):
            return BeginAgain()
        return await self._existing.join(existing, request, new=new)

    def _scope_of_cart(self, user_id: str, cart: Cart) -> str:
        """Return a scope derived from the cart's etag, or a random scope if the cart has no etag."""
        if cart.etag is None and not self._warned_of_etags:
            log.warning("carts have no etag: every call without an idempotency-key is a new order")
            self._warned_of_etags = True
        # Keep the "0:", because the scopes in existing journals were hashed with it.
        return scope_of(user_id, "cart", f"0:{cart.etag or uuid.uuid4()}")

    async def _find_of_cart(self, request: OrderRequest, cart: Cart, scope: str) -> Entry | None:
        """Return the cart's order, if any. If the cart is empty, return only an order that this request began."""
        if cart.lines:
            return await self.journal.find(scope)
        # Return an order only if the cart service reports that this order emptied the cart. The cart may also be empty
        # because it has expired, or because the cart service has lost its data.
        etag = cart.ordered_etag
        existing = await self.journal.find_of_cart(request.user_id, etag) if etag else None
        return existing if existing and existing.fingerprint in request.fingerprints else None


async def price(order_id: str, request: OrderRequest, cart: Cart, quotes: Quotes) -> Order:
    """Return a new order with this id, priced in the request's currency.

    A line costs its unit price times its quantity. All costs are converted, then rounded to the currency's minor unit.

    Raise CartEmpty, ProductWithdrawn, QuoteRefused or NothingToPay if the cart cannot be ordered, InvalidArgument if
    the currency is unknown, OutOfRange if an amount is too large, and Unavailable if a peer fails.
    """
    if not cart.lines:
        raise CartEmpty("the cart is empty")
    lines, address = cart.lines, require_address(request)
    # Call peers sequentially: nearly all answers are cached, so concurrent tasks would cost more time than they save.
    prices = await quotes.unit_prices([line.product_id for line in lines])
    shipping = await quotes.shipping(address, lines)
    # Multiply before rounding: rounding the unit prices first would give a different amount.
    amounts = [(unit * line.quantity).in_range() for unit, line in zip(prices, lines, strict=True)]
    converted = await quotes.convert([shipping, *amounts], request.user_currency)
    shipping_cost, *costs = map(round_to_minor_unit, converted)
    order = Order(
        order_id,
        request.user_id,
        request.email,
        cart.generation or cart.etag or "",
        address,
        tuple(OrderLine(line.product_id, line.quantity, cost) for line, cost in zip(lines, costs, strict=True)),
        shipping_cost,
    )
    if order.total.in_range().total_nanos <= 0:
        raise NothingToPay("the order costs nothing, so there is nothing to charge")
    return order


async def _read(reading: Awaitable[T], until: float, what: str) -> T:
    try:
        async with asyncio.timeout_at(until):
            return await reading
    except TimeoutError as error:
        raise QuotesTooSlow(f"reading {what} took too long; nothing was ordered") from error
