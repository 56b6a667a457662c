"""Places orders: finds the order that a request belongs to, or begins a new one, and returns its outcome."""

import asyncio
import uuid
from dataclasses import dataclass
from itertools import count

import structlog
from opentelemetry import trace

from chassis import calls
from chassis.errors import IdempotencyKeyReused
from chassis.failpoints import Failpoints
from chassis.hmac_keys import HmacKeys
from checkout_service import saga
from checkout_service.domain import (
    REFUSED,
    Address,
    Card,
    Cart,
    CartEmpty,
    OrderRequest,
    PlacedOrder,
    State,
    fingerprints,
    scope_of,
    validate,
)
from checkout_service.executor import RETRY_SHARE_OF_LEASE, Executor, Run, Work
from checkout_service.failpoints import QUOTED
from checkout_service.ports import LEASE_SECONDS, Entry, Journal, NewOrder, Quotes
from checkout_service.pricing import price
from checkout_service.refusals import CartOrdered, OrderInFlight, OrderInProgress, QuotesTooSlow, error_of
from checkout_service.saga import SagaResult

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
        pending = _PendingRequest(request, fingerprints(request, self._hmac_keys), _answer_by())
        if key is not None:
            scope = scope_of(request.user_id, "key", key)
            existing = await self._journal.find(scope)
            if existing is not None:
                return await self._join(_require_same_request(existing, pending), pending)
        address, card = validate(request)
        read_until = asyncio.get_running_loop().time() + READ_WITHIN_SECONDS
        cart = await self._read_cart(request.user_id, read_until)
        if key is None:
            scope, existing = await self._find_by_cart(cart, pending)
            if existing is not None:
                return await self._join(existing, pending)
        new = await self._quote(scope, pending, address, cart, read_until)
        return await self._begin(new, card, pending)

    async def _read_cart(self, user_id: str, until: float) -> Cart:
        try:
            async with asyncio.timeout_at(until):
                return await self._quotes.cart(user_id)
        except TimeoutError as error:
            raise QuotesTooSlow("reading the cart took too long; nothing was ordered") from error

    async def _find_by_cart(self, cart: Cart, pending: _PendingRequest) -> tuple[str, Entry | None]:
        """Return the scope of this cart, and its order if there is one.

        A different request for the same cart gets a scope of its own once the order before it was refused or abandoned.
        """
        user_id = pending.request.user_id
        if not cart.lines:
            for fingerprint in pending.fingerprints:
                recent = await self._journal.find_recent(fingerprint)
                if recent is not None:
                    return "", recent  # the cart was emptied because it was ordered
            raise CartEmpty("the cart is empty")
        if cart.etag is None:
            self._warn_of_missing_etag()
            return scope_of(user_id, "cart", str(uuid.uuid4())), None
        own: tuple[str, Entry] | None = None
        for generation in count():
            scope = scope_of(user_id, "cart", f"{generation}:{cart.etag}")
            existing = await self._journal.find(scope)
            if existing is None:
                return own or (scope, None)
            failed = existing.state in REFUSED | {State.ABANDONED}
            if pending.is_of(existing):
                own = scope, existing
            elif not failed:
                raise _cart_conflict(existing)
            if not failed:
                return scope, existing
        raise AssertionError("unreachable")

    async def _quote(
        self, scope: str, pending: _PendingRequest, address: Address, cart: Cart, until: float
    ) -> NewOrder:
        try:
            async with asyncio.timeout_at(until):
                order = await price(pending.request, address, cart, self._quotes)
        except TimeoutError as error:
            raise QuotesTooSlow("reading prices took too long; nothing was ordered") from error
        if asyncio.get_running_loop().time() >= pending.answer_by:
            raise QuotesTooSlow("the deadline leaves too little time to place the order; nothing was ordered")
        await self._failpoints.reach(QUOTED)
        return NewOrder(scope, pending.fingerprints[0], order, _traceparent())

    async def _begin(self, new: NewOrder, card: Card, pending: _PendingRequest) -> Placement:
        work = Work(new.order, 1, 1, card, new, self._retry_seconds)
        run = self._executor.start(work, saga.place())
        result = await _wait_for(run, pending.answer_by)
        if run.placed is not None:
            return Placement(run.placed, replayed=False)
        if result in {None, SagaResult.UNFINISHED}:
            raise OrderInProgress(new.order.order_id)
        existing = await self._journal.find(new.scope)
        if existing is None:
            raise AssertionError("an order is missing from the journal")
        return await self._join(_require_same_request(existing, pending), pending)

    async def _join(self, existing: Entry, pending: _PendingRequest) -> Placement:
        """Return the outcome of an order that another call began; continue the order if no worker does."""
        entry: Entry | None = existing
        while entry is not None:
            if entry.placed is not None:
                return Placement(entry.placed, replayed=True)
            if entry.state in REFUSED:
                raise error_of(entry)
            placed = await self._follow(entry, pending)
            if placed is not None:
                return Placement(placed, replayed=True)
            entry = await self._journal.read(entry.order_id)
        raise AssertionError("an order is missing from the journal")

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
        resumable = entry.state is State.ABANDONED or (entry.state is State.CHARGING and not entry.leased)
        if card is None or not resumable:
            return None
        taken = await self._journal.take_over(entry)
        if taken is None:
            return None
        work = Work(taken.order, taken.attempt, taken.epoch, card, retry_seconds=self._retry_seconds)
        return self._executor.start(work, saga.charge(doubtful=entry.state is State.CHARGING))

    def _warn_of_missing_etag(self) -> None:
        if not self._warned_of_etags:
            log.warning("carts have no etag: every call without an idempotency-key is a new order")
        self._warned_of_etags = True


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
    return OrderInFlight(existing.order_id) if existing.placed is None else CartOrdered(existing.order_id)


def _traceparent() -> str:
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return ""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
