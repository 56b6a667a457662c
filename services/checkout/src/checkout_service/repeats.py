"""Answers requests whose order is in the journal already."""

import asyncio
from dataclasses import dataclass, replace

from checkout_service import saga
from checkout_service.domain import REFUSED, State
from checkout_service.errors import OrderInFlight, OrderInProgress, cart_conflict, error_of
from checkout_service.executor import Executor, Run
from checkout_service.order_spans import current_traceparent, describe_order
from checkout_service.ports import Entry, Journal, new_owner
from checkout_service.requests import OrderRequest
from checkout_service.saga import SagaResult

_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class RepeatedOrders:
    """Waits for the outcome of orders that other calls began, and continues those that no worker holds."""

    journal: Journal
    executor: Executor

    async def answer(self, existing: Entry, request: OrderRequest, *, replayed: bool = True) -> Entry:
        """Return the order once it is placed. Raises the refusal of a refused one, OrderInProgress, OrderInFlight.

        `replayed`: False if this call began it, and it was refused.
        """
        entry: Entry | None = existing
        while entry is not None:
            if not request.began(entry.fingerprint):  # it was refused, and another request has ordered the cart since
                raise cart_conflict(entry)
            describe_order(entry.order, attempt=entry.attempt, replayed=replayed)
            if entry.is_placed:
                return entry
            if entry.state in REFUSED:
                raise error_of(entry)
            placed = await self._wait_or_continue(entry, request)
            if placed is not None:
                return placed
            entry = await self.journal.read(existing.order_id)
        raise OrderInProgress(existing.order_id)

    async def reopen(self, seen: Entry, new: Entry, request: OrderRequest) -> Run | None:
        """Begin the next attempt of an order, with the content of the new one. None: it has changed.

        Raises the conflict with another order that holds the cart.
        """
        taken = await self.journal.reopen(seen, new)
        if taken is not None:
            return self.executor.start(taken, saga.charge(resumed=False), request.card)
        holder = await self.journal.find_of_cart(new.order.user_id, new.order.cart_generation)
        if holder is not None and holder.order_id != seen.order_id:
            raise cart_conflict(holder)
        return None

    async def _wait_or_continue(self, entry: Entry, request: OrderRequest) -> Entry | None:
        """Wait for the order's worker. None: read the journal again. Raises OrderInProgress and OrderInFlight."""
        running = self.executor.running.get(entry.order_id)
        continued = None if running else await self._continue(entry, request)
        if run := running or continued:
            result = await outcome_of(run, request.answer_by)
            if run.entry.is_placed:
                return run.entry
            if continued and result in {None, SagaResult.UNFINISHED}:
                raise OrderInProgress(entry.order_id)
            if result is None:
                raise OrderInFlight(entry.order_id)
            return None
        if asyncio.get_running_loop().time() + _POLL_SECONDS >= request.answer_by:
            raise OrderInFlight(entry.order_id)
        await asyncio.sleep(_POLL_SECONDS)  # another replica works on it: only the journal has its outcome
        return None

    async def _continue(self, entry: Entry, request: OrderRequest) -> Run | None:
        """Continue an order in doubt, or reopen an abandoned one: the repeated request has brought the card again."""
        if request.card is None:
            return None
        if entry.state is State.ABANDONED:
            again = replace(entry, owner=new_owner(), traceparent=current_traceparent())
            return await self.reopen(entry, again, request)
        if entry.state is not State.CHARGING or entry.leased:
            return None
        taken = await self.journal.take_over(entry)
        return self.executor.start(taken, saga.take_over(taken), request.card) if taken else None


async def outcome_of(run: Run, until: float) -> SagaResult | None:
    """Return the run's result, None if it has none by then. Neither a timeout nor a cancelled caller stops the run."""
    # wait() leaves the task alone; wait_for() would cancel it, between charge and shipment.
    await asyncio.wait([run.task], timeout=max(until - asyncio.get_running_loop().time(), 0))
    return run.task.result() if run.task.done() else None
