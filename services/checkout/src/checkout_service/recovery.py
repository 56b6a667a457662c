"""Finishes orders whose workers died, hung or gave up. Every replica runs it."""

import asyncio
import random
from itertools import count

import structlog
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from chassis.failpoints import Failpoints
from chassis.telemetry import Telemetry
from checkout_service import saga
from checkout_service.background import log_unexpected_errors, retry_delay_seconds
from checkout_service.domain import State
from checkout_service.executor import Executor, Work
from checkout_service.failpoints import TAKEN_OVER
from checkout_service.metrics import OrderMetrics
from checkout_service.ports import Entry, Journal, JournalUnavailable
from checkout_service.saga import SagaResult

log = structlog.get_logger()

TURN_SECONDS = 1.0
_MAX_IN_PROGRESS = 16
_TURNS_PER_SWEEP = 30
_ALERT_FAILURES = 3
_PROPAGATOR = TraceContextTextMapPropagator()


class Recovery:
    """Takes over orders whose lease has expired, a few at a time; the delay of an order grows with its failures."""

    def __init__(
        self, journal: Journal, executor: Executor, metrics: OrderMetrics, telemetry: Telemetry, failpoints: Failpoints
    ) -> None:
        self._journal = journal
        self._executor = executor
        self._metrics = metrics
        self._tracer = telemetry.tracer
        self._failpoints = failpoints
        self._in_progress = 0
        self._released_own = False
        self._turns = count()

    async def run(self) -> None:
        """Recover orders, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                try:
                    for entry in await self._claim():
                        tasks.create_task(self._recover_claimed(entry), name=f"recover {entry.order_id}")
                except JournalUnavailable:
                    log.warning("recovery cannot reach the journal")
                # The jitter keeps replicas from claiming at the same moment.
                await asyncio.sleep(TURN_SECONDS * random.uniform(0.8, 1.2))  # noqa: S311 - not a secret

    async def _claim(self) -> list[Entry]:
        """Claim orders that are due. Also update the statistics, and now and then settle complete orders."""
        if not self._released_own:
            await self._journal.release_own()
            self._released_own = True
        self._metrics.statistics = await self._journal.statistics()
        if next(self._turns) % _TURNS_PER_SWEEP == 0:
            for order_id in await self._journal.settle_complete():
                self._metrics.record_change(order_id, State.DONE)
        free = _MAX_IN_PROGRESS - self._in_progress
        entries = await self._journal.claim_expired(free) if free else []
        self._in_progress += len(entries)
        return entries

    async def _recover_claimed(self, entry: Entry) -> None:
        try:
            await log_unexpected_errors(self._recover(entry), "recovery of an order failed")
        finally:
            self._in_progress -= 1

    async def _recover(self, entry: Entry) -> None:
        links = _links(entry)
        attributes: dict[str, str | int] = {"order.id": entry.order_id, "order.failures": entry.failures}
        with self._tracer.start_as_current_span("recover order", Context(), links=links, attributes=attributes):
            await self._failpoints.reach(TAKEN_OVER)
            steps = saga.release() if entry.state is State.VOIDING else saga.resolve()
            result = await self._executor.start(recovery_work(entry), steps).task
        if result is SagaResult.UNFINISHED and entry.failures >= _ALERT_FAILURES:
            log.error("order is stuck", order_id=entry.order_id, state=entry.state.value, failures=entry.failures)


def recovery_work(entry: Entry) -> Work:
    """Return the work on an order that was taken over: without its card, and with one try."""
    delay = retry_delay_seconds(entry.failures)
    return Work(entry.order, entry.claim, release_delay_seconds=delay)


def _links(entry: Entry) -> list[Link]:
    """Link the trace of the recovery to the trace in which the order was placed."""
    context = _PROPAGATOR.extract({"traceparent": entry.traceparent})
    placed_in = trace.get_current_span(context).get_span_context()
    return [Link(placed_in)] if placed_in.is_valid else []
