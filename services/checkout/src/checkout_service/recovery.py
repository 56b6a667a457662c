"""Finishes orders whose workers died, hung or gave up. Every replica runs it."""

import asyncio
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
        await self._release_own()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._update_statistics(), name="statistics")
            tasks.create_task(self._settle_complete(), name="settle complete orders")
            for worker in self._workers:
                tasks.create_task(worker.run())

    async def _release_own(self) -> None:
        while True:
            try:
                return await self._journal.release_own()
            except JournalUnavailable:
                log.warning("recovery cannot reach the journal")
            await asyncio.sleep(_RETRY_SECONDS)

    async def _settle_complete(self) -> None:
        while True:
            try:
                for order_id in await self._journal.settle_complete():
                    self._metrics.record_change(order_id, State.DONE)
            except JournalUnavailable:
                log.warning("complete orders cannot be settled")
            await asyncio.sleep(_SWEEP_SECONDS)

    async def _update_statistics(self) -> None:
        while True:
            try:
                self._metrics.statistics = await self._journal.statistics()
            except JournalUnavailable:
                log.warning("the statistics of orders cannot be read")
            await asyncio.sleep(_STATISTICS_SECONDS)

    async def _recover(self, entry: Entry) -> bool | None:
        """Continue an order. Return whether it could be finished; None, if another worker has it."""
        # A probe is tried again soon: the circuit breaker delays it.
        circuit = self._circuits[entry.state].of(failed=entry.failures > 1)
        failures = 0 if circuit.open else entry.failures
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
