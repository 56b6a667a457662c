"""Answers requests whose order, or whose cart, is in the journal already."""

import asyncio
from dataclasses import dataclass

from chassis.errors import DomainError, InvalidArgument
from checkout_service import saga
from checkout_service.domain import REFUSED, RELEASED_CART, State
from checkout_service.errors import (
    CartOrdered,
    OrderInFlight,
    OrderInProgress,
    already_recorded,
    error_of,
    require_same_request,
)
from checkout_service.executor import Executor, Run
from checkout_service.order_spans import describe_order
from checkout_service.ports import Entry, Journal
from checkout_service.requests import OrderRequest
from checkout_service.saga import SagaResult

_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class RepeatedOrders:
    """Waits for the outcome of orders that other calls began, and continues those that no worker holds."""

    journal: Journal
    executor: Executor

    async def answer(
        self, existing: Entry, request: OrderRequest, *, replayed: bool = True
    ) -> tuple[Entry, bool] | None:
        """Return the order once it is placed, or None once it may begin again.

        Raises the refusal of a refused order, OrderInProgress, OrderInFlight. Of another request's order of the same
        cart see `give_way`. `replayed`: False if this call began it.
        """
        entry: Entry | None = existing
        while entry is not None:
            if not request.began(entry.fingerprint):
                await self._wait_for_cart(entry, request, left=False)
                return None
            describe_order(entry.order, attempt=entry.attempt, replayed=replayed)
            if entry.is_placed:
                return entry, True
            if entry.state in REFUSED:
                raise error_of(entry)
            if entry.state is State.ABANDONED:
                return None
            with already_recorded(existing.order_id):
                placed = await self._wait_or_continue(entry, request)
                if placed is not None:
                    return placed, True
                entry = await self.journal.read(existing.order_id)
        raise OrderInProgress(existing.order_id)

    async def give_way(self, holder: Entry, new: Entry, request: OrderRequest) -> tuple[Entry, bool] | None:
        """Answer a request whose new order was not recorded, because of the order that has its scope or its cart.

        None: that order has ended, and the request may look at what is left in the cart. Raises CartOrdered if nothing
        is, or if an operator has to decide that, and OrderInFlight if it takes too long.
        """
        if holder.scope == new.scope:
            if may_begin_again(holder, request):
                return None
            if request.key is not None:
                require_same_request(holder, request)
            return await self.answer(holder, request)
        await self._wait_for_cart(holder, request, left=holder.order.quantities != new.order.quantities)
        return None

    async def _wait_for_cart(self, holder: Entry, request: OrderRequest, *, left: bool) -> None:
        """Wait until an order has left the cart. `left`: the cart has, or had, other items than the order."""
        entry: Entry | None = holder
        while entry is not None and entry.state not in RELEASED_CART:
            if entry.state in REFUSED or (entry.is_placed and not left):
                raise error_of(entry) if entry.state is State.SETTLED else CartOrdered(entry.order_id)
            if entry.is_placed:
                await self._remove_from_cart(entry, request)
                return
            run = self.executor.running.get(entry.order_id)
            await self._wait(run, entry.order_id, request)
            entry = await self.journal.read(holder.order_id)

    async def _remove_from_cart(self, placed: Entry, request: OrderRequest) -> None:
        """Remove the items of a placed order, as its own worker does: no other order may buy them before."""
        try:
            async with asyncio.timeout_at(request.answer_by):
                await self.executor.outbox.start_removal(placed)
        except TimeoutError as error:
            raise OrderInFlight(placed.order_id) from error
        except DomainError:
            await self._wait(None, placed.order_id, request)

    async def _wait_or_continue(self, entry: Entry, request: OrderRequest) -> Entry | None:
        """Wait for the order's worker. None: read the journal again. Raises OrderInProgress and OrderInFlight."""
        running = self.executor.running.get(entry.order_id)
        if running is None and (continued := await self._continue(entry, request)):
            result = await outcome_of(continued, request.answer_by)
            if result in {None, SagaResult.UNFINISHED}:
                raise OrderInProgress(entry.order_id)
            return continued.entry if continued.entry.is_placed else None
        await self._wait(running, entry.order_id, request)
        return running.entry if running is not None and running.entry.is_placed else None

    async def _continue(self, entry: Entry, request: OrderRequest) -> Run | None:
        """Continue an order in doubt: the repeated request has brought the card again."""
        if request.card is None or entry.state is not State.CHARGING or entry.leased:
            return None
        taken = await self.journal.take_over(entry)
        return self.executor.start(taken, saga.take_over(taken), request.card) if taken else None

    async def _wait(self, run: Run | None, order_id: str, request: OrderRequest) -> None:
        """Wait for a run of this replica, or until the journal is worth another look. Raises OrderInFlight."""
        if run is not None:
            result = await outcome_of(run, request.answer_by)
            if result is None:
                raise OrderInFlight(order_id)
            if result is not SagaResult.UNFINISHED:
                return
        # A pause, and time to place the order after it.
        if asyncio.get_running_loop().time() + 3 * _POLL_SECONDS >= request.answer_by:
            raise OrderInFlight(order_id)
        await asyncio.sleep(_POLL_SECONDS)  # another replica works on it: only the journal has its outcome


def may_begin_again(existing: Entry, request: OrderRequest) -> bool:
    """Return whether the order of the request's scope has ended without effect, and this is its next attempt.

    Under a key a refusal is final, but of malformed fields, which the caller corrects, payment has recorded none.
    """
    if request.key is None:
        return existing.state in RELEASED_CART
    malformed = existing.refusal is not None and existing.refusal.kind == InvalidArgument.__name__
    is_same = existing.state is State.ABANDONED and request.began(existing.fingerprint)
    return is_same or (existing.state is State.DECLINED and malformed)


async def outcome_of(run: Run, until: float) -> SagaResult | None:
    """Return the run's result, None if it has none by then. Neither a timeout nor a cancelled caller stops the run."""
    # wait() leaves the task alone; wait_for() would cancel it, between charge and shipment.
    await asyncio.wait([run.task], timeout=max(until - asyncio.get_running_loop().time(), 0))
    return run.task.result() if run.task.done() else None
