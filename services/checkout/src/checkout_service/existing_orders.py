"""Answers requests whose key or cart already has an order in the journal."""

import asyncio
from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias

from chassis.errors import DomainError, IdempotencyKeyReused, InvalidArgument
from checkout_service import saga
from checkout_service.domain import RELEASED_CART, State
from checkout_service.errors import CartOrdered, OrderInFlight, OrderInProgress, already_recorded, error_of
from checkout_service.executor import Executor, Run
from checkout_service.journal.sql import Journal
from checkout_service.order_spans import describe_order
from checkout_service.ports import Entry
from checkout_service.requests import OrderRequest, scope_of_key
from checkout_service.saga import SagaResult

_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Placed:
    """This call has placed the order."""

    entry: Entry


@dataclass(frozen=True, slots=True)
class Replayed:
    """An earlier or concurrent call has placed the order."""

    entry: Entry


@dataclass(frozen=True, slots=True)
class BeginAgain:
    """No existing order answers the request: read the cart again, and order the items that are in it now."""


Outcome: TypeAlias = Placed | Replayed | BeginAgain


class Decision(Enum):
    """How to answer a request whose key or cart already has an order."""

    WAIT = auto()
    """The order has no outcome yet: decide again once it changes."""
    REPLAY = auto()
    REFUSE = auto()
    """Raise the order's original error."""
    REFUSE_KEY = auto()
    """A different request has used the key."""
    REFUSE_CART = auto()
    """The cart belongs to another request's order, which an operator must settle first."""
    SHARE_CART = auto()
    """Another request has bought some or all of the cart's items: order the remaining items, if there are any."""
    BEGIN_AGAIN = auto()


_DECISIONS = {
    # order state: (decision if this request started the order, decision if another request for the same cart did)
    State.CHARGING: (Decision.WAIT, Decision.WAIT),
    State.VOIDING: (Decision.WAIT, Decision.WAIT),
    State.SETTLING: (Decision.WAIT, Decision.WAIT),
    State.SHIPPED: (Decision.REPLAY, Decision.SHARE_CART),
    State.DONE: (Decision.REPLAY, Decision.SHARE_CART),
    State.DECLINED: (Decision.REFUSE, Decision.BEGIN_AGAIN),
    State.VOIDED: (Decision.REFUSE, Decision.BEGIN_AGAIN),
    State.ABANDONED: (Decision.BEGIN_AGAIN, Decision.BEGIN_AGAIN),
    State.NEEDS_REFUND: (Decision.REFUSE, Decision.REFUSE_CART),
    State.NEEDS_REVIEW: (Decision.REFUSE, Decision.REFUSE_CART),
    State.SETTLED: (Decision.REFUSE, Decision.REFUSE),
}


def decide(existing: Entry, request: OrderRequest, *, is_own: bool) -> Decision:
    """Decide how to answer a request. `is_own` is True if an identical request started the existing order."""
    of_same_request, of_other_request = _DECISIONS[State.NEEDS_REVIEW if existing.unreadable else existing.state]
    if is_own:
        return of_same_request
    is_of_key = request.key is not None and existing.scope == scope_of_key(request)
    return Decision.REFUSE_KEY if is_of_key else of_other_request


def may_begin_again(existing: Entry, request: OrderRequest) -> bool:
    """Return whether the order ended without a lasting charge, so that this request may begin its next attempt.

    With an idempotency key, a refusal is final unless payment rejected a malformed field: payment doesn't record such
    a refusal, and the caller can correct the field.
    """
    if request.key is None:
        return existing.state in RELEASED_CART
    malformed = existing.refusal is not None and existing.refusal.kind == InvalidArgument.__name__
    is_same = existing.state is State.ABANDONED and existing.fingerprint in request.fingerprints
    return is_same or (existing.state is State.DECLINED and malformed)


@dataclass(frozen=True, slots=True)
class ExistingOrders:
    """Waits for orders that other calls are placing, and continues orders that no worker holds."""

    journal: Journal
    executor: Executor

    async def join(
        self, existing: Entry | None, request: OrderRequest, *, new: Entry | None = None, replayed: bool = True
    ) -> Outcome:
        """Wait for the outcome of the order that has the request's key or cart, then return the request's outcome.

        `existing` is that order, or None if no order holds the cart anymore. `new` is the order that the request would
        have placed, or None if it is not priced yet. If `replayed`, another call started the existing order.
        Raise the error to return to the caller, which is OrderInProgress or OrderInFlight if the wait takes too long.
        """
        entry = existing
        while entry is not None:
            # If the cart has changed since the order was started, even an identical request asks for a new order.
            is_own = entry.fingerprint in request.fingerprints and (new is None or new.scope == entry.scope)
            if is_own:
                describe_order(entry.order, attempt=entry.attempt, replayed=replayed)
            match decide(entry, request, is_own=is_own):
                case Decision.WAIT:
                    entry = await self._wait_for_change(entry, request, is_own=is_own)
                case Decision.REPLAY:
                    return Replayed(entry)
                case Decision.REFUSE:
                    raise error_of(entry)
                case Decision.REFUSE_KEY:
                    raise IdempotencyKeyReused
                case Decision.SHARE_CART if new is not None and new.order.quantities != entry.order.quantities:
                    await self._remove_from_cart(entry, request)
                    break
                case Decision.SHARE_CART | Decision.REFUSE_CART:
                    raise CartOrdered(entry.order_id)
                case Decision.BEGIN_AGAIN:
                    break
        return BeginAgain()

    async def _wait_for_change(self, entry: Entry, request: OrderRequest, *, is_own: bool) -> Entry | None:
        """Wait for the order's worker, or continue an order that has none. Return the order, or None if it is gone."""
        run = self.executor.running.get(entry.order_id)
        if not is_own:
            await self._wait(run, entry.order_id, request)
            return await self.journal.read(entry.order_id)
        with already_recorded(entry.order_id):
            if run is None and (run := await self._continue(entry, request)) is not None:
                if await run.result(request.answer_by) is SagaResult.UNFINISHED and not run.entry.is_placed:
                    raise OrderInProgress(entry.order_id)
            else:
                await self._wait(run, entry.order_id, request)
            changed = run.entry if run is not None and run.entry.is_placed else await self.journal.read(entry.order_id)
        if changed is None:
            raise OrderInProgress(entry.order_id)
        return changed

    async def _continue(self, entry: Entry, request: OrderRequest) -> Run | None:
        """Continue an order that no worker holds, charging the card of the repeated request."""
        if request.card is None or entry.state is not State.CHARGING or entry.leased:
            return None
        taken = await self.journal.take_over(entry)
        return self.executor.start(taken, saga.take_over(taken), request.card) if taken else None

    async def _remove_from_cart(self, placed: Entry, request: OrderRequest) -> None:
        """Remove a placed order's items from the cart, so that this request does not buy them again."""
        try:
            async with asyncio.timeout_at(request.answer_by):
                await self.executor.outbox.start_removal(placed)
        except TimeoutError as error:
            raise OrderInFlight(placed.order_id) from error
        except DomainError:
            await self._wait(None, placed.order_id, request)

    async def _wait(self, run: Run | None, order_id: str, request: OrderRequest) -> None:
        """Wait for the run, or pause before reading the journal again. Raise OrderInFlight if no time is left."""
        if run is not None and await run.result(request.answer_by) is not SagaResult.UNFINISHED:
            return
        # Leave enough time for the pause and for placing the order afterwards.
        if asyncio.get_running_loop().time() + 3 * _POLL_SECONDS >= request.answer_by:
            raise OrderInFlight(order_id)
        await asyncio.sleep(_POLL_SECONDS)  # the order's worker may be on another replica, so poll the journal
