"""Answers requests whose key or cart already has an order in the journal."""

import asyncio
from dataclasses import dataclass
from typing import TypeAlias

from chassis.errors import DomainError, IdempotencyKeyReused, InvalidArgument
from checkout_service import saga
from checkout_service.domain import OPEN, PLACED, RELEASED_CART, State
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
    """A placed order. `replayed`: whether an earlier or concurrent call has placed it."""

    entry: Entry
    replayed: bool = False


Outcome: TypeAlias = Placed | None
"""None means that the earlier order has ended: read the cart again, and order what is left in it."""


def may_begin_again(existing: Entry, request: OrderRequest) -> bool:
    """Return whether the order ended without a lasting charge, so that this request may begin its next attempt.

    Under an idempotency key, a refusal is final. The exception is a field that payment found malformed: payment does
    not record such a refusal, and the caller can correct the field.
    """
    if request.key is None:
        return existing.state in RELEASED_CART
    malformed = existing.refusal is not None and existing.refusal.kind == InvalidArgument.__name__
    is_same = existing.state is State.ABANDONED and request.began(existing.fingerprint)
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

        `existing` may be the request's own order, or None if the order is gone. `new` is the order that the request
        would have placed, or None if it has no prices yet. If `replayed`, another call started the existing order.
        Raise the error to return to the caller, which is OrderInProgress or OrderInFlight if the wait takes too long.
        """
        entry = existing
        while entry is not None:
            # If the cart has changed since the order was started, even an identical request is for another order.
            is_own = request.began(entry.fingerprint) and (new is None or new.scope == entry.scope)
            if is_own:
                describe_order(entry.order, attempt=entry.attempt, replayed=replayed)
            elif request.key is not None and entry.scope == scope_of_key(request):
                raise IdempotencyKeyReused
            if entry.unreadable or entry.state not in OPEN:
                return await self._outcome_of(entry, request, new, is_own=is_own)
            entry = await self._wait_for_change(entry, request, is_own=is_own)
        return None

    async def _outcome_of(self, existing: Entry, request: OrderRequest, new: Entry | None, *, is_own: bool) -> Outcome:
        """Return a request's outcome, or raise its error, given the order that has its key or cart and isn't open."""
        state = State.NEEDS_REVIEW if existing.unreadable else existing.state
        if state is State.ABANDONED or (state in RELEASED_CART and not is_own):
            return None
        if is_own and state in PLACED:
            return Placed(existing, replayed=True)
        if is_own or state is State.SETTLED:
            raise error_of(existing)
        # Another request has bought some or all of the cart, unless an operator must close its order first.
        if state in PLACED and new is not None and new.order.quantities != existing.order.quantities:
            await self._remove_from_cart(existing, request)
            return None
        raise CartOrdered(existing.order_id)

    async def _wait_for_change(self, entry: Entry, request: OrderRequest, *, is_own: bool) -> Entry | None:
        """Wait for the order's worker, or become its worker. Return the changed order, or None if it is gone."""
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
