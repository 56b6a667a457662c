"""Finishes the orders whose workers died, hung or gave up. Every replica runs it, beside the others."""

import asyncio
import random

import structlog
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from chassis.failpoints import Failpoints
from chassis.telemetry import Telemetry
from checkout_service import failpoints as points
from checkout_service import saga
from checkout_service.codec import order_from_bytes
from checkout_service.domain import Order, State
from checkout_service.executor import Executor, Work
from checkout_service.journal import Entry, Journal, JournalUnavailable
from checkout_service.outbox import pause_seconds, unless_broken
from checkout_service.saga import Ending
from checkout_service.watch import Watch

log = structlog.get_logger()

TURN_SECONDS = 1.0
_AT_ONCE = 16
_ALERT_FAILURES = 3
_PROPAGATOR = TraceContextTextMapPropagator()


class Recovery:
    """Takes orders whose lease ran out, a few at a time; one that fails again and again waits ever longer."""

    def __init__(
        self, journal: Journal, executor: Executor, watch: Watch, telemetry: Telemetry, failpoints: Failpoints
    ) -> None:
        self._journal = journal
        self._executor = executor
        self._watch = watch
        self._tracer = telemetry.tracer
        self._failpoints = failpoints
        self._in_hand = 0
        self._released_own = False

    async def work(self) -> None:
        """Recover, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                try:
                    for entry in await self.claim():
                        tasks.create_task(self._recover_one(entry), name=f"recover {entry.order_id}")
                except JournalUnavailable:
                    log.warning("recovery can't read the journal")
                await asyncio.sleep(TURN_SECONDS * random.uniform(0.8, 1.2))  # noqa: S311 - replicas in turn

    async def claim(self) -> list[Entry]:
        """Take what is due, and read the statistics."""
        if not self._released_own:
            await self._journal.release_own()
            self._released_own = True
        self._watch.statistics = await self._journal.statistics()
        free = _AT_ONCE - self._in_hand
        entries = await self._journal.claim_expired(free) if free else []
        self._in_hand += len(entries)
        return entries

    async def recover(self, entry: Entry) -> Ending:
        """Finish one order, or leave it for later."""
        links = _links(entry)
        attributes: dict[str, str | int] = {"order.id": entry.order_id, "order.failures": entry.failures}
        with self._tracer.start_as_current_span("recover order", Context(), links=links, attributes=attributes):
            await self._failpoints.reach(points.TAKEN_OVER)
            steps = saga.release() if entry.state is State.VOIDING else saga.resolve()
            ending = await self._executor.start(work_on(entry), steps).task
        if ending is Ending.LEFT and entry.failures >= _ALERT_FAILURES:
            log.error("order is stuck", order_id=entry.order_id, state=entry.state.value, failures=entry.failures)
        return ending

    async def _recover_one(self, entry: Entry) -> None:
        try:
            await unless_broken(self._recover(entry), "recovery of an order failed")
        finally:
            self._in_hand -= 1

    async def _recover(self, entry: Entry) -> None:
        await self.recover(entry)


def work_on(entry: Entry) -> Work:
    """The work on an order that was taken over, without its card: one try, then a pause that grows."""
    return Work(order_of(entry), entry.attempt, entry.epoch, leave_seconds=pause_seconds(entry.failures))


def order_of(entry: Entry) -> Order:
    """The order with its frozen prices."""
    return order_from_bytes(entry.snapshot, user_id=entry.user_id, email=entry.email, cart_etag=entry.cart_etag)


def _links(entry: Entry) -> list[Link]:
    """Recovery has a trace of its own, linked to the one that the order was placed in."""
    context = _PROPAGATOR.extract({"traceparent": entry.traceparent})
    placed_in = trace.get_current_span(context).get_span_context()
    return [Link(placed_in)] if placed_in.is_valid else []
