"""Places orders: find, quote, record, charge, ship, answer."""

import asyncio
import uuid
from dataclasses import dataclass, field, replace

import structlog

from chassis.errors import DomainError
from chassis.failpoints import Failpoints
from chassis.rpc import calls
from chassis.values.keys import HmacKeys
from chassis.values.money import round_to_minor_unit
from checkout_service import saga
from checkout_service.domain import RELEASED_CART, Cart, CartEmpty, NothingToPay, Order, OrderLine, order_id_of
from checkout_service.errors import OrderInProgress, QuotesTooSlow, cart_conflict, require_same_request
from checkout_service.executor import Executor, Run
from checkout_service.failpoints import QUOTED
from checkout_service.order_spans import current_traceparent, describe_order, describe_request
from checkout_service.ports import Entry, Journal, Quotes
from checkout_service.repeats import RepeatedOrders, outcome_of
from checkout_service.requests import OrderRequest, fingerprints, require_address, scope_of, validate
from checkout_service.saga import SagaResult

log = structlog.get_logger()

READ_WITHIN_SECONDS = 1.0
# For callers without a deadline.
ANSWER_WITHIN_SECONDS = 15.0

ANSWER_BEFORE_DEADLINE_SECONDS = 0.1


@dataclass(eq=False)
class OrderPlacer:
    """Places orders, one per scope.

    Attributes:
        hmac_keys: for fingerprints.
    """

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
        read_until = asyncio.get_running_loop().time() + READ_WITHIN_SECONDS
        found = await self._find(request, read_until)
        entry = found if isinstance(found, Entry) else await self._quote(request, found, read_until)
        if entry.is_new:
            return await self._record_charge_and_ship(entry, request)
        return await self._repeats.answer(entry, request), True

    async def _find(self, request: OrderRequest, read_until: float) -> Entry | Cart:
        """Return the order of an earlier call of this request, or the cart to order."""
        if request.key is not None and (existing := await self.journal.find(_scope_of_key(request))):
            # Before validation: what was accepted once has the same answer for ever.
            return require_same_request(existing, request)
        validate(request)
        cart = await self._read_cart(request.user_id, read_until)
        if request.key is not None:
            return cart
        if not cart.lines:
            return await self._find_emptied_by(request, cart)
        # Any other repeat is noticed by the insert: a new order is not to pay for a read.
        if order_id_of(self._scope_of(request, cart)) in self.executor.running:
            return await self._find_of_cart(request, cart) or cart
        return cart

    async def _quote(self, request: OrderRequest, cart: Cart, read_until: float) -> Entry:
        """Return a new order with frozen prices, or that of an earlier call if the prices cannot be read any more."""
        scope = self._scope_of(request, cart)
        order_id = order_id_of(scope)
        describe_request(order_id, request.user_currency, len(cart.lines))
        try:
            async with asyncio.timeout_at(read_until):
                order = await price(order_id, request, cart, self.quotes)
            if asyncio.get_running_loop().time() >= request.answer_by:
                raise QuotesTooSlow("the deadline leaves too little time to place the order; nothing was ordered")
        except (DomainError, TimeoutError) as error:
            existing = None if request.key else await self._find_of_cart(request, cart)
            if existing is not None:
                return existing
            if isinstance(error, DomainError):
                raise
            raise QuotesTooSlow("reading prices took too long; nothing was ordered") from error
        await self.failpoints.reach(QUOTED)
        return Entry(scope, request.fingerprints[0], order, current_traceparent())

    async def _record_charge_and_ship(self, new: Entry, request: OrderRequest) -> tuple[Entry, bool]:
        """Run the saga of a new order, and return its outcome, or that of the order that has its scope."""
        run: Run | None = self.executor.start(new, saga.place(), request.card)
        while True:
            result = None
            if run is not None:
                describe_order(new.order, attempt=run.entry.attempt, replayed=False)
                result = await outcome_of(run, request.answer_by)
                if run.entry.is_placed:
                    return run.entry, False
                if result in {None, SagaResult.UNFINISHED}:
                    raise OrderInProgress(new.order_id)
            preceding = await self._find_preceding(new, request)
            if result is SagaResult.SETTLED:  # the card or the shipment was refused
                return await self._repeats.answer(preceding, request, replayed=False), True
            if request.began(preceding.fingerprint):
                return await self._repeats.answer(preceding, request), True
            # Another request's order of this cart was refused or abandoned: this one is its next attempt.
            run = await self._repeats.reopen(preceding, new, request)

    async def _read_cart(self, user_id: str, read_until: float) -> Cart:
        try:
            async with asyncio.timeout_at(read_until):
                return await self.quotes.cart(user_id)
        except TimeoutError as error:
            raise QuotesTooSlow("reading the cart took too long; nothing was ordered") from error

    def _scope_of(self, request: OrderRequest, cart: Cart) -> str:
        """Return the scope of the key; without a key that of the cart, random if it has no etag."""
        if request.key is not None:
            return _scope_of_key(request)
        if cart.etag is None and not self._warned_of_etags:
            log.warning("carts have no etag: every call without an idempotency-key is a new order")
            self._warned_of_etags = True
        # Earlier releases counted the orders of a cart; 0 is the first.
        return scope_of(request.user_id, "cart", f"0:{cart.etag or uuid.uuid4()}")

    async def _find_emptied_by(self, request: OrderRequest, cart: Cart) -> Entry:
        """Return the order of this request that has emptied the cart. Raises CartEmpty if there is none."""
        # Only the cart service can prove that: a cart also empties when it expires or its store is lost, and an old
        # order must not be the answer then.
        etag = cart.ordered_etag
        existing = await self.journal.find_of_cart(request.user_id, etag) if etag else None
        if existing is None or not request.began(existing.fingerprint):
            raise CartEmpty("the cart is empty")
        return existing

    async def _find_of_cart(self, request: OrderRequest, cart: Cart) -> Entry | None:
        """Return the cart's order if this request began it. Raises the conflict with one that holds the cart."""
        existing = await self.journal.find(self._scope_of(request, cart))
        if existing is None or request.began(existing.fingerprint):
            return existing
        if existing.state not in RELEASED_CART:
            raise cart_conflict(existing)
        return None

    async def _find_preceding(self, new: Entry, request: OrderRequest) -> Entry:
        """Return the order of the same scope that was recorded instead of this one.

        It is another request's only if that one was refused or abandoned. Raises the conflict with another request's
        order, and OrderInProgress if the journal has lost the order.
        """
        existing = await self.journal.find(new.scope)
        if existing is not None and request.key is not None:
            return require_same_request(existing, request)
        if existing is not None and (request.began(existing.fingerprint) or existing.state in RELEASED_CART):
            return existing
        holder = await self.journal.find_of_cart(new.order.user_id, new.order.cart_generation)
        if holder is None:
            raise OrderInProgress(new.order_id)
        raise cart_conflict(holder)


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
        cart.etag or "",
        address,
        tuple(OrderLine(line.product_id, line.quantity, cost) for line, cost in zip(lines, costs, strict=True)),
        shipping_cost,
    )
    if order.total.in_range().total_nanos <= 0:
        raise NothingToPay("the order costs nothing, so there is nothing to charge")
    return order


def _answer_by() -> float:
    remaining = calls.remaining_seconds()
    seconds = ANSWER_WITHIN_SECONDS if remaining is None else remaining - ANSWER_BEFORE_DEADLINE_SECONDS
    return asyncio.get_running_loop().time() + seconds


def _scope_of_key(request: OrderRequest) -> str:
    return scope_of(request.user_id, "key", request.key or "")
