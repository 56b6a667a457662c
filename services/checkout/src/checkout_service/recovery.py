"""Finishes orders whose workers died, hung or gave up. Every replica runs it."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import structlog
from opentelemetry.context import Context

from chassis.failpoints import Failpoints
from chassis.telemetry import semconv
from chassis.telemetry.instruments import Telemetry
from checkout_service import saga
from checkout_service.domain import OPEN, State
from checkout_service.executor import Executor
from checkout_service.failpoints import TAKEN_OVER
from checkout_service.metrics import OrderMetrics
from checkout_service.order_spans import describe_order, links_to
from checkout_service.ports import Entry, Journal, JournalUnavailable
from checkout_service.queue_workers import Circuits, PollTimer, QueueWorker, retry_delay_seconds
from checkout_service.saga import SagaResult

log = structlog.get_logger()

_ALERT_FAILURES = 3
_RETRY_SECONDS = 1.0
_STATISTICS_SECONDS = 5.0
_SWEEP_SECONDS = 30.0


class Recovery:
    """Takes over orders whose lease has expired, a few at a time; the delay of an order grows with its failures.

    While orders of a state fail every time, because payment or shipping is down, only one is tried now and then.
    """

    def __init__(
        self,
        journal: Journal,
        executor: Executor,
        poll_timer: PollTimer,
        *,
        metrics: OrderMetrics,
        telemetry: Telemetry,
        failpoints: Failpoints,
    ) -> None:
        self._journal = journal
        self._executor = executor
        self._metrics = metrics
        self._tracer = telemetry.tracer
        self._failpoints = failpoints
        self._circuits = {state: Circuits(f"recovery of {state.value}") for state in OPEN}
        self._workers = [
            QueueWorker(
                poll_timer, circuits, failed, partial(journal.claim_expired, state, failed=failed), self._recover
            )
            for state, circuits in self._circuits.items()
            for failed in (False, True)
        ]

    async def run(self) -> None:
        """Recover orders, until cancelled."""
        # A restarted replica continues its own orders at once.
        while not await _attempt(self._journal.release_own, "recovery cannot reach the journal"):  # noqa: ASYNC110 - polls a database
            await asyncio.sleep(_RETRY_SECONDS)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep_statistics(), name="statistics")
            tasks.create_task(self._sweep(), name="settle complete orders")
            for worker in self._workers:
                tasks.create_task(worker.run())

    async def _keep_statistics(self) -> None:
        async def update() -> None:
            self._metrics.statistics = await self._journal.statistics()

        while True:
            await _attempt(update, "the statistics of orders cannot be read")
            await asyncio.sleep(_STATISTICS_SECONDS)

    async def _sweep(self) -> None:
        async def settle() -> None:
            for order_id in await self._journal.settle_complete():
                self._metrics.record_change(order_id, State.DONE)

        while True:
            await _attempt(settle, "complete orders cannot be settled")
            await asyncio.sleep(_SWEEP_SECONDS)

    async def _recover(self, entry: Entry) -> bool | None:
        """Continue an order. Return whether it could be finished; None, if another worker has it."""
        # A probe is tried again soon: the circuit breaker delays it.
        circuit = self._circuits[entry.state].of(failed=entry.failures > 1)
        failures = 0 if circuit.open else entry.failures
        # The order's own trace ended when its worker died.
        links = links_to(entry.traceparent)
        attributes = {semconv.ORDER_FAILURES: entry.failures}
        with self._tracer.start_as_current_span("recover order", Context(), links=links, attributes=attributes):
            describe_order(entry.order, attempt=entry.attempt)
            await self._failpoints.reach(TAKEN_OVER)
            # Without the card, and with one try of each step: the delay grows from one worker to the next.
            delay = retry_delay_seconds(failures)
            result = await self._executor.start(entry, saga.recover(entry), release_delay_seconds=delay).task
        if result is SagaResult.SETTLED:
            self._metrics.record_recovered()
        if result is SagaResult.UNFINISHED and entry.failures >= _ALERT_FAILURES:
            log.error("order is stuck", order_id=entry.order_id, state=entry.state.value, failures=entry.failures)
        return None if result is SagaResult.SUPERSEDED else result is SagaResult.SETTLED


async def _attempt(work: Callable[[], Awaitable[None]], warning: str) -> bool:
    """Return whether the journal was available for this work."""
    try:
        await work()
    except JournalUnavailable:
        log.warning(warning)
        return False
    return True
