"""Places orders: finds the order that a request belongs to, or begins it, and answers with what became of it."""

import asyncio
import uuid
from dataclasses import dataclass
from itertools import count

import structlog
from opentelemetry import trace

from chassis import calls
from chassis.errors import IdempotencyKeyReused
from chassis.failpoints import Failpoints
from checkout_service import failpoints as points
from checkout_service import saga
from checkout_service.codec import answer_to_bytes
from checkout_service.domain import (
    REFUSED,
    Address,
    Card,
    Cart,
    CartEmpty,
    OrderRequest,
    Quotes,
    State,
    check,
    fingerprint,
    scope_of,
)
from checkout_service.executor import PATIENCE_OF_LEASE, Executor, Run, Work
from checkout_service.journal import LEASE_SECONDS, Entry, Journal, NewOrder
from checkout_service.pricing import price
from checkout_service.recovery import order_of
from checkout_service.refusals import (
    CartOrdered,
    OrderInFlight,
    OrderInProgress,
    QuotesTooSlow,
    error_of,
)
from checkout_service.saga import Ending

log = structlog.get_logger()

READ_WITHIN_SECONDS = 1.0
ANSWER_WITHIN_SECONDS = 15.0
"""For callers who set no deadline."""

ANSWER_BEFORE_DEADLINE_SECONDS = 0.1
_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Answer:
    """A placed order. `replayed`: another call placed it."""

    response: bytes
    replayed: bool


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request while it is worked on; `answer_by` is on the event loop's clock."""

    request: OrderRequest
    mark: str
    answer_by: float


class Placing:
    """Places orders, each scope once."""

    def __init__(
        self,
        journal: Journal,
        quotes: Quotes,
        executor: Executor,
        hmac_key: bytes,
        failpoints: Failpoints,
        *,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        self._journal = journal
        self._quotes = quotes
        self._executor = executor
        self._hmac_key = hmac_key
        self._failpoints = failpoints
        self._patience_seconds = PATIENCE_OF_LEASE * lease_seconds
        self._told_of_etags = False

    async def place(self, request: OrderRequest, key: str | None) -> Answer:
        """Place the order of this request, or answer as the call that did.

        Without a key the cart's etag is the key. Raises kinds of chassis.errors: OrderInProgress and OrderInFlight
        leave the order's outcome open, JournalUnavailable does for an order that was in the journal before; after
        every other one no card was charged by this call.
        """
        asked = _Asked(request, fingerprint(request, self._hmac_key), _answer_by())
        if key is not None:
            scope = scope_of(request.user_id, "key", key)
            known = await self._journal.find(scope)
            if known is not None:
                return await self._join(_require_same(known, asked.mark), asked)
        address, card = check(request)
        reads_until = asyncio.get_running_loop().time() + READ_WITHIN_SECONDS
        cart = await self._read_cart(request.user_id, reads_until)
        if key is None:
            scope, known = await self._find_by_cart(cart, asked)
            if known is not None:
                return await self._join(known, asked)
        new = await self._quote(scope, asked, address, cart, reads_until)
        return await self._begin(new, card, asked)

    async def _read_cart(self, user_id: str, until: float) -> Cart:
        try:
            async with asyncio.timeout_at(until):
                return await self._quotes.cart(user_id)
        except TimeoutError as error:
            raise QuotesTooSlow("the cart was not read in time") from error

    async def _find_by_cart(self, cart: Cart, asked: _Asked) -> tuple[str, Entry | None]:
        """The scope that stands for this cart, and its order if there is one.

        Another request for the same cart gets a scope of its own once the order before it came to nothing.
        """
        user_id = asked.request.user_id
        if not cart.lines:
            recent = await self._journal.find_recent(asked.mark)
            if recent is None:
                raise CartEmpty("the cart is empty")
            return "", recent  # it was emptied because it was ordered
        if cart.etag is None:
            self._tell_of_etags()
            return scope_of(user_id, "cart", str(uuid.uuid4())), None
        mine: tuple[str, Entry] | None = None
        for generation in count():
            scope = scope_of(user_id, "cart", f"{generation}:{cart.etag}")
            known = await self._journal.find(scope)
            if known is None:
                return mine or (scope, None)
            came_to_nothing = known.state in REFUSED | {State.ABANDONED}
            if known.fingerprint == asked.mark:
                mine = scope, known
            elif not came_to_nothing:
                raise _other_order_of_cart(known)
            if not came_to_nothing:
                return scope, known
        raise AssertionError("not reached")

    async def _quote(self, scope: str, asked: _Asked, address: Address, cart: Cart, until: float) -> NewOrder:
        try:
            async with asyncio.timeout_at(until):
                order = await price(asked.request, address, cart, self._quotes)
        except TimeoutError as error:
            raise QuotesTooSlow("prices were not told in time") from error
        if asyncio.get_running_loop().time() >= asked.answer_by:
            raise QuotesTooSlow("too little time is left to place the order")
        await self._failpoints.reach(points.QUOTED)
        return NewOrder(scope, asked.mark, order, answer_to_bytes(order), _traceparent())

    async def _begin(self, new: NewOrder, card: Card, asked: _Asked) -> Answer:
        work = Work(new.order, 1, 1, card, new, self._patience_seconds)
        run = self._executor.start(work, saga.place())
        ending = await _wait_for(run, asked.answer_by)
        if run.answer is not None:
            return Answer(run.answer, replayed=False)
        if ending in {None, Ending.LEFT}:
            raise OrderInProgress(new.order.order_id)
        known = await self._journal.find(new.scope)
        if known is None:
            raise AssertionError("the journal lost an order")
        return await self._join(_require_same(known, asked.mark), asked)

    async def _join(self, known: Entry, asked: _Asked) -> Answer:
        """Answer with what becomes of an order that another call began, and go on with it if nobody else does."""
        entry: Entry | None = known
        while entry is not None:
            if entry.answer is not None:
                return Answer(entry.answer, replayed=True)
            if entry.state in REFUSED:
                raise error_of(entry)
            answer = await self._follow(entry, asked)
            if answer is not None:
                return Answer(answer, replayed=True)
            entry = await self._journal.read(entry.order_id)
        raise AssertionError("the journal lost an order")

    async def _follow(self, entry: Entry, asked: _Asked) -> bytes | None:
        """Wait for whoever has the order; None means that the journal may know more now. Raises OrderInFlight."""
        run = self._executor.running.get(entry.order_id)
        resumed = None if run else await self._resume(entry, asked.request.card)
        if run := run or resumed:
            ending = await _wait_for(run, asked.answer_by)
            if resumed and ending in {None, Ending.LEFT} and run.answer is None:
                raise OrderInProgress(entry.order_id)
            if ending is None and run.answer is None:
                raise OrderInFlight(entry.order_id)
            return run.answer
        if asyncio.get_running_loop().time() + _POLL_SECONDS >= asked.answer_by:
            raise OrderInFlight(entry.order_id)
        await asyncio.sleep(_POLL_SECONDS)
        return None

    async def _resume(self, entry: Entry, card: Card | None) -> Run | None:
        """With the card at hand again an order in doubt or an abandoned one can go on at once."""
        resumable = entry.state is State.ABANDONED or (entry.state is State.CHARGING and not entry.leased)
        if card is None or not resumable:
            return None
        taken = await self._journal.take_over(entry)
        if taken is None:
            return None
        work = Work(order_of(taken), taken.attempt, taken.epoch, card, patience_seconds=self._patience_seconds)
        return self._executor.start(work, saga.charge(doubtful=entry.state is State.CHARGING))

    def _tell_of_etags(self) -> None:
        if not self._told_of_etags:
            log.warning("the cart has no etag: an order without an idempotency-key is a new one each time")
        self._told_of_etags = True


def _answer_by() -> float:
    remaining = calls.remaining_seconds()
    seconds = ANSWER_WITHIN_SECONDS if remaining is None else remaining - ANSWER_BEFORE_DEADLINE_SECONDS
    return asyncio.get_running_loop().time() + seconds


async def _wait_for(run: Run, until: float) -> Ending | None:
    """How the run ended; None if it has not yet. Neither a deadline nor a cancel of the caller stops it."""
    await asyncio.wait([run.task], timeout=max(until - asyncio.get_running_loop().time(), 0))
    return run.task.result() if run.task.done() else None


def _require_same(known: Entry, mark: str) -> Entry:
    if known.fingerprint != mark:
        raise IdempotencyKeyReused
    return known


def _other_order_of_cart(known: Entry) -> OrderInFlight | CartOrdered:
    if known.answer is None:
        return OrderInFlight(known.order_id)
    return CartOrdered("this cart was ordered already", metadata={"order_id": known.order_id})


def _traceparent() -> str:
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return ""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
