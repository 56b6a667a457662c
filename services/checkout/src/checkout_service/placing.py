"""Places orders: finds the order that a request belongs to, or begins a new one, and returns its outcome."""

import asyncio
import uuid
from dataclasses import dataclass

import structlog

from chassis.errors import DomainError, IdempotencyKeyReused
from chassis.failpoints import Failpoints
from chassis.rpc import calls
from chassis.values.keys import HmacKeys
from checkout_service import saga
from checkout_service.domain import (
    NEEDS_OPERATOR,
    PLACED,
    REFUSED,
    RELEASED_CART,
    Address,
    Card,
    Cart,
    CartEmpty,
    OrderRequest,
    PlacedOrder,
    State,
    fingerprints,
    order_id_of,
    scope_of,
    validate,
)
from checkout_service.executor import RETRY_SHARE_OF_LEASE, Executor, Run, Work
from checkout_service.failpoints import QUOTED
from checkout_service.order_spans import current_traceparent, describe_order, describe_request
from checkout_service.ports import LEASE_SECONDS, Entry, Journal, NewOrder, Quotes
from checkout_service.pricing import price
from checkout_service.refusals import CartOrdered, OrderInFlight, OrderInProgress, QuotesTooSlow, error_of
from checkout_service.saga import Saga, SagaResult

log = structlog.get_logger()

READ_WITHIN_SECONDS = 1.0
ANSWER_WITHIN_SECONDS = 15.0
"""For callers without a deadline."""

ANSWER_BEFORE_DEADLINE_SECONDS = 0.1
_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Placement:
    """A placed order. `replayed`: an earlier or concurrent call placed it."""

    placed: PlacedOrder
    replayed: bool


@dataclass(frozen=True, slots=True)
class _PendingRequest:
    """A request in progress.

    Attributes:
        fingerprints: of the request under each HMAC key; the first is stored with a new order.
        answer_by: on the event loop's clock.
    """

    request: OrderRequest
    has_key: bool
    fingerprints: list[str]
    answer_by: float

    def is_of(self, order: Entry) -> bool:
        """Return whether the order was begun by the same request, perhaps before a change of the HMAC key."""
        return order.fingerprint in self.fingerprints


class OrderPlacer:
    """Places orders, one per scope.

    Args:
        hmac_keys: for fingerprints.
        lease_seconds: that of the journal; limits how long a caller's order is retried in its own task.
    """

    def __init__(
        self,
        journal: Journal,
        quotes: Quotes,
        executor: Executor,
        hmac_keys: HmacKeys,
        failpoints: Failpoints,
        *,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        self._journal = journal
        self._quotes = quotes
        self._executor = executor
        self._hmac_keys = hmac_keys
        self._failpoints = failpoints
        self._retry_seconds = RETRY_SHARE_OF_LEASE * lease_seconds
        self._warned_of_etags = False

    async def place(self, request: OrderRequest, key: str | None) -> Placement:
        """Place the order of this request, or return the outcome of the call that did.

        Without a key the cart's etag is the key. OrderInProgress and OrderInFlight leave the order's outcome open, and
        so does JournalUnavailable for an order that was recorded before. After any other error, all kinds of
        chassis.errors, this call has charged no card.
        """
        pending = _PendingRequest(request, key is not None, fingerprints(request, self._hmac_keys), _answer_by())
        scope = None if key is None else scope_of(request.user_id, "key", key)
        existing = await self._journal.find(scope) if scope else None
        if existing is not None:
            return await self._join(_require_same_request(existing, pending), pending)
        address, card = validate(request)
        read_until = asyncio.get_running_loop().time() + READ_WITHIN_SECONDS
        cart = await self._read_cart(request.user_id, read_until)
        if scope is None:
            if not cart.lines:
                return await self._join(await self._find_emptied_by(pending, cart), pending)
            scope = self._scope_of_cart(request.user_id, cart)
            # Any other repeat is noticed by the insert: a new order is not to pay for a read.
            if order_id_of(scope) in self._executor.running and (existing := await self._find_own(scope, pending)):
                return await self._join(existing, pending)
        try:
            new = await self._quote(scope, pending, address, cart, read_until)
        except DomainError:
            # It may be a repeat of an order that was placed when there were quotes.
            if pending.has_key or not (existing := await self._find_own(scope, pending)):
                raise
            return await self._join(existing, pending)
        return await self._begin(new, card, pending)

    async def _read_cart(self, user_id: str, until: float) -> Cart:
        try:
            async with asyncio.timeout_at(until):
                return await self._quotes.cart(user_id)
        except TimeoutError as error:
            raise QuotesTooSlow("reading the cart took too long; nothing was ordered") from error

    def _scope_of_cart(self, user_id: str, cart: Cart) -> str:
        """Return the scope of all requests for this cart without a key. It is random if the cart has no etag."""
        if cart.etag is None and not self._warned_of_etags:
            log.warning("carts have no etag: every call without an idempotency-key is a new order")
            self._warned_of_etags = True
        # Earlier releases counted the orders of a cart; 0 is the first.
        return scope_of(user_id, "cart", f"0:{cart.etag or uuid.uuid4()}")

    async def _find_emptied_by(self, pending: _PendingRequest, cart: Cart) -> Entry:
        """Return the order of this request that has emptied the cart. Raises CartEmpty if there is none."""
        # Only the cart service can prove that it was this request.
        etag = cart.ordered_etag
        existing = await self._journal.find_of_cart(pending.request.user_id, etag) if etag else None
        if existing is None or not pending.is_of(existing):
            raise CartEmpty("the cart is empty")
        return existing

    async def _find_own(self, scope: str, pending: _PendingRequest) -> Entry | None:
        """Return the cart's order if this request began it. Raises the conflict with one that holds the cart."""
        existing = await self._journal.find(scope)
        if existing is None or pending.is_of(existing):
            return existing
        if existing.state not in RELEASED_CART:
            raise _cart_conflict(existing)
        return None

    async def _quote(
        self, scope: str, pending: _PendingRequest, address: Address, cart: Cart, until: float
    ) -> NewOrder:
        order_id = order_id_of(scope)
        describe_request(order_id, pending.request.user_currency, len(cart.lines))
        try:
            async with asyncio.timeout_at(until):
                order = await price(order_id, pending.request, address, cart, self._quotes)
        except TimeoutError as error:
            raise QuotesTooSlow("reading prices took too long; nothing was ordered") from error
        if asyncio.get_running_loop().time() >= pending.answer_by:
            raise QuotesTooSlow("the deadline leaves too little time to place the order; nothing was ordered")
        await self._failpoints.reach(QUOTED)
        return NewOrder(scope, pending.fingerprints[0], order, current_traceparent())

    async def _begin(
        self, new: NewOrder, card: Card, pending: _PendingRequest, released: Entry | None = None
    ) -> Placement:
        """Begin the order; `released`: an earlier request's order of the same scope, which this one replaces."""
        run: Run | None
        result: SagaResult | None = None
        if released is None:
            work = Work(new.order, new.fingerprint, new.claim, card, new, self._retry_seconds)
            run = self._executor.start(work, saga.place())
        else:
            run = await self._reopen(released, new, card)
        if run is not None:
            describe_order(new.order, attempt=run.claim.attempt, replayed=False)
            result = await _wait_for(run, pending.answer_by)
            if run.placed is not None:
                return Placement(run.placed, replayed=False)
            if result in {None, SagaResult.UNFINISHED}:
                raise OrderInProgress(new.order.order_id)
        refused = result is SagaResult.SETTLED
        existing = await self._find_preceding(new, pending)
        if not refused and not pending.is_of(existing):  # another request's, which was refused or abandoned
            return await self._begin(new, card, pending, existing)
        return await self._join(existing, pending, replayed=not refused)

    async def _find_preceding(self, new: NewOrder, pending: _PendingRequest) -> Entry:
        """Return the order of the same scope that was recorded instead of this one.

        It is another request's only if that one was refused or abandoned. Raises the conflict with another request's
        order, and OrderInProgress if the journal has lost the order.
        """
        existing = await self._journal.find(new.scope)
        if existing is not None and pending.has_key:
            return _require_same_request(existing, pending)
        if existing is not None and (pending.is_of(existing) or existing.state in RELEASED_CART):
            return existing
        holder = await self._journal.find_of_cart(new.order.user_id, new.order.cart_etag)
        if holder is None:
            raise OrderInProgress(new.order.order_id)
        raise _cart_conflict(holder)

    async def _join(self, existing: Entry, pending: _PendingRequest, *, replayed: bool = True) -> Placement:
        """Return the outcome of an order that another call began; continue the order if no worker does.

        `replayed`: False if this call began it, and it was refused.
        """
        entry: Entry | None = existing
        while entry is not None:
            if not pending.is_of(entry):  # it was refused, and the cart is ordered by another request
                raise _cart_conflict(entry)
            describe_order(entry.order, attempt=entry.attempt, replayed=replayed)
            if entry.placed is not None:
                return Placement(entry.placed, replayed=True)
            if entry.state in REFUSED:
                raise error_of(entry)
            placed = await self._follow(entry, pending)
            if placed is not None:
                return Placement(placed, replayed=True)
            entry = await self._journal.read(existing.order_id)
        raise OrderInProgress(existing.order_id)

    async def _follow(self, entry: Entry, pending: _PendingRequest) -> PlacedOrder | None:
        """Wait for the order's worker. None: read the journal again. Raises OrderInProgress and OrderInFlight."""
        run = self._executor.running.get(entry.order_id)
        resumed = None if run else await self._resume(entry, pending.request.card)
        if run := run or resumed:
            result = await _wait_for(run, pending.answer_by)
            if resumed and result in {None, SagaResult.UNFINISHED} and run.placed is None:
                raise OrderInProgress(entry.order_id)
            if result is None and run.placed is None:
                raise OrderInFlight(entry.order_id)
            return run.placed
        if asyncio.get_running_loop().time() + _POLL_SECONDS >= pending.answer_by:
            raise OrderInFlight(entry.order_id)
        await asyncio.sleep(_POLL_SECONDS)
        return None

    async def _resume(self, entry: Entry, card: Card | None) -> Run | None:
        """Continue an order in doubt, or reopen an abandoned one: the repeated request has brought the card again."""
        if card is None:
            return None
        if entry.state is State.ABANDONED:
            again = NewOrder("", entry.fingerprint, entry.order, current_traceparent())
            return await self._reopen(entry, again, card)
        if entry.state is not State.CHARGING or entry.leased:
            return None
        taken = await self._journal.take_over(entry)
        return self._continue(taken, card, saga.take_over(taken)) if taken else None

    async def _reopen(self, seen: Entry, new: NewOrder, card: Card) -> Run | None:
        """Begin the next attempt of an order. None: it has changed. Raises the conflict with another order's cart."""
        taken = await self._journal.reopen(seen, new)
        if taken is not None:
            return self._continue(taken, card, saga.charge(resumed=False))
        holder = await self._journal.find_of_cart(new.order.user_id, new.order.cart_etag)
        if holder is not None and holder.order_id != seen.order_id:
            raise _cart_conflict(holder)
        return None

    def _continue(self, taken: Entry, card: Card, steps: Saga) -> Run:
        work = Work(taken.order, taken.fingerprint, taken.claim, card, retry_seconds=self._retry_seconds)
        return self._executor.start(work, steps)


def _answer_by() -> float:
    remaining = calls.remaining_seconds()
    seconds = ANSWER_WITHIN_SECONDS if remaining is None else remaining - ANSWER_BEFORE_DEADLINE_SECONDS
    return asyncio.get_running_loop().time() + seconds


async def _wait_for(run: Run, until: float) -> SagaResult | None:
    """Return the run's result, None if it has none by then. Neither a timeout nor a cancelled caller stops the run."""
    await asyncio.wait([run.task], timeout=max(until - asyncio.get_running_loop().time(), 0))
    return run.task.result() if run.task.done() else None


def _require_same_request(existing: Entry, pending: _PendingRequest) -> Entry:
    if not pending.is_of(existing):
        raise IdempotencyKeyReused
    return existing


def _cart_conflict(existing: Entry) -> OrderInFlight | CartOrdered:
    holds_cart = existing.state in PLACED | NEEDS_OPERATOR
    return CartOrdered(existing.order_id) if holds_cart else OrderInFlight(existing.order_id)
