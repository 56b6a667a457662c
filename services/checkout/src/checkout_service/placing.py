"""Places orders: find, quote, record, charge, ship, answer."""

import asyncio
import uuid
from collections.abc import Awaitable
from dataclasses import dataclass, field, replace
from typing import TypeVar

import structlog

from chassis.errors import DomainError
from chassis.failpoints import Failpoints
from chassis.rpc import calls
from chassis.values.keys import HmacKeys
from chassis.values.money import round_to_minor_unit
from checkout_service import saga
from checkout_service.domain import Cart, CartEmpty, NothingToPay, Order, OrderLine, order_id_of
from checkout_service.errors import OrderInProgress, QuotesTooSlow, TotalChanged, already_recorded, require_same_request
from checkout_service.executor import Executor
from checkout_service.failpoints import QUOTED
from checkout_service.order_spans import current_traceparent, describe_order, describe_request
from checkout_service.ports import Entry, Journal, Quotes
from checkout_service.repeats import RepeatedOrders, may_begin_again, outcome_of
from checkout_service.requests import OrderRequest, fingerprints, require_address, require_card, scope_of, validate
from checkout_service.saga import SagaResult

log = structlog.get_logger()

T = TypeVar("T")

READ_WITHIN_SECONDS = 1.0
# For callers without a deadline.
ANSWER_WITHIN_SECONDS = 15.0

ANSWER_BEFORE_DEADLINE_SECONDS = 0.1


@dataclass(eq=False)
class OrderPlacer:
    """Places orders, one per scope. `hmac_keys`: for fingerprints."""

    journal: Journal
    quotes: Quotes
    executor: Executor
    hmac_keys: HmacKeys
    failpoints: Failpoints
    _warned_of_etags: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._repeats = RepeatedOrders(self.journal, self.executor)

    async def place(self, request: OrderRequest) -> tuple[Entry, bool]:
        """Place the order of this request, or wait for the outcome of the call that did.

        Return the placed order, and whether an earlier or concurrent call placed it. Without a key the cart's etag is
        the key. OrderInProgress and OrderInFlight leave the order's outcome open, and so does JournalUnavailable for an
        order that was recorded before. After any other error, all kinds of chassis.errors, this call has charged no
        card.
        """
        request = replace(request, fingerprints=fingerprints(request, self.hmac_keys), answer_by=_answer_by())
        placed = await self._place_once(request, first=True)
        while placed is None:
            # An order before this one has ended: what it has left in the cart is read anew.
            placed = await self._place_once(request, first=False)
        return placed

    async def quote(self, request: OrderRequest) -> Order:
        """Return what `place` would order now, without an id or an effect. Raises what `place` raises before it."""
        request, read_until = validate(request), asyncio.get_running_loop().time() + READ_WITHIN_SECONDS
        cart = await _read(self.quotes.cart(request.user_id), read_until, "the cart")
        return await _read(price("", request, cart, self.quotes), read_until, "prices")

    async def _place_once(self, request: OrderRequest, *, first: bool) -> tuple[Entry, bool] | None:
        """Find, quote, record, charge, ship, answer. None: another order had the scope or the cart, and has ended."""
        read_until = asyncio.get_running_loop().time() + READ_WITHIN_SECONDS
        before = await self.journal.find(_scope_of_key(request)) if request.key is not None else None
        if before is not None and not may_begin_again(before, request):
            # Before validation: what was accepted once has the same answer for ever.
            return await self._repeats.answer(require_same_request(before, request), request)
        request = validate(request)
        require_card(request)
        cart = await _read(self.quotes.cart(request.user_id), read_until, "the cart")
        scope = self._scope_of(request, cart)
        if request.key is None:
            before = await self._find_of_cart(request, cart, scope, first=first)
            if before is not None and not may_begin_again(before, request):
                return await self._repeats.answer(before, request)
        try:
            new = await self._quote(request, cart, scope, read_until)
        except DomainError:
            existing = await self.journal.find(scope) if request.key is None and first else None
            if existing is None or may_begin_again(existing, request):
                raise
            return await self._repeats.answer(existing, request)
        return await self._record_charge_and_ship(new, before, request)

    async def _quote(self, request: OrderRequest, cart: Cart, scope: str, read_until: float) -> Entry:
        """Return a new order with frozen prices."""
        order_id = order_id_of(scope)
        describe_request(order_id, request.user_currency, len(cart.lines))
        order = await _read(price(order_id, request, cart, self.quotes), read_until, "prices")
        if request.expected_total is not None and request.expected_total != str(order.total):
            raise TotalChanged(order.total)
        if asyncio.get_running_loop().time() >= request.answer_by:
            raise QuotesTooSlow("the deadline leaves too little time to place the order; nothing was ordered")
        await self.failpoints.reach(QUOTED)
        return Entry(scope, request.fingerprints[0], order, current_traceparent())

    async def _record_charge_and_ship(
        self, new: Entry, before: Entry | None, request: OrderRequest
    ) -> tuple[Entry, bool] | None:
        """Run the saga of a new order, or of the next attempt of the one `before` it in its scope."""
        taken = new if before is None else await self.journal.reopen(before, new)
        if taken is None:
            holder = await self.journal.find_of_cart(new.order.user_id, new.order.cart_generation)
            return await self._repeats.give_way(holder, new, request) if holder is not None else None
        steps = saga.place() if before is None else saga.charge(resumed=False)
        run = self.executor.start(taken, steps, request.card)
        describe_order(new.order, attempt=run.entry.attempt, replayed=False)
        result = await outcome_of(run, request.answer_by)
        if run.entry.is_placed:
            return run.entry, False
        if result in {None, SagaResult.UNFINISHED}:
            raise OrderInProgress(new.order_id)
        with already_recorded(new.order_id):
            holder = run.preceded_by or await self.journal.read(new.order_id)
        if holder is None:
            raise OrderInProgress(new.order_id)
        if result is SagaResult.SETTLED:  # the card or the shipment was refused
            return await self._repeats.answer(holder, request, replayed=False)
        return await self._repeats.give_way(holder, new, request)

    def _scope_of(self, request: OrderRequest, cart: Cart) -> str:
        """Return the scope of the key; without a key that of the cart, random if it has no etag."""
        if request.key is not None:
            return _scope_of_key(request)
        if cart.etag is None and not self._warned_of_etags:
            log.warning("carts have no etag: every call without an idempotency-key is a new order")
            self._warned_of_etags = True
        # Earlier releases counted the orders of a cart; 0 is the first.
        return scope_of(request.user_id, "cart", f"0:{cart.etag or uuid.uuid4()}")

    async def _find_of_cart(self, request: OrderRequest, cart: Cart, scope: str, *, first: bool) -> Entry | None:
        """Return the order of this cart, or the order of this request that has emptied it. Raises CartEmpty."""
        if cart.lines:
            # At first a repeat is noticed by the insert: a new order is not to pay for a read.
            known = not first or order_id_of(scope) in self.executor.running
            return await self.journal.find(scope) if known else None
        # Only the cart service can prove that an order emptied it: a cart also empties when it expires or its store is
        # lost, and an old order must not be the answer then.
        etag = cart.ordered_etag
        existing = await self.journal.find_of_cart(request.user_id, etag) if etag else None
        if existing is None or not request.began(existing.fingerprint):
            raise CartEmpty("the cart is empty")
        return existing


async def price(order_id: str, request: OrderRequest, cart: Cart, quotes: Quotes) -> Order:
    """Return a new order of this id with frozen prices in the request's currency.

    A line costs its unit price times its quantity, converted and then rounded to the currency's minor unit; shipping is
    converted and rounded alike. Raises CartEmpty, ProductWithdrawn, QuoteRefused, NothingToPay, OutOfRange,
    InvalidArgument for an unknown currency, Unavailable.
    """
    if not cart.lines:
        raise CartEmpty("the cart is empty")
    lines, address = cart.lines, require_address(request)
    # Nearly all answers are cached, so tasks that run at the same time would cost more time than they save.
    prices = await quotes.unit_prices([line.product_id for line in lines])
    shipping = await quotes.shipping(address, lines)
    # Quantity before rounding: a line that is rounded piece by piece costs another amount.
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


def _answer_by() -> float:
    remaining = calls.remaining_seconds()
    seconds = ANSWER_WITHIN_SECONDS if remaining is None else remaining - ANSWER_BEFORE_DEADLINE_SECONDS
    return asyncio.get_running_loop().time() + seconds


def _scope_of_key(request: OrderRequest) -> str:
    return scope_of(request.user_id, "key", request.key or "")
