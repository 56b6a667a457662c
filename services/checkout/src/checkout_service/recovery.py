"""Finishes orders whose workers have crashed, hung or given up. Every replica runs recovery."""

import asyncio
from dataclasses import dataclass

import structlog
from opentelemetry.context import Context

from chassis.background import repeat
from chassis.failpoints import Failpoints
from chassis.telemetry import semconv
from chassis.telemetry.instruments import Telemetry
from checkout_service import saga
from checkout_service.domain import OPEN, State
from checkout_service.executor import Executor
from checkout_service.failpoints import TAKEN_OVER
from checkout_service.journal.sql import Journal
from checkout_service.metrics import OrderMetrics
from checkout_service.order_spans import describe_order, links_to
from checkout_service.ports import Entry
from checkout_service.queue_workers import CircuitBreaker, PollTimer, circuits_of, retry_delay_seconds, run_workers
from checkout_service.saga import SagaResult

log = structlog.get_logger()

_ALERT_FAILURES = 3
_STATISTICS_SECONDS = 5.0
_SWEEP_SECONDS = 30.0


@dataclass(eq=False)
class Recovery:
    """Takes over orders whose leases have expired, a few at a time. An order's retry delay grows with each failure.

    When the orders in a state keep failing, for example because payment is down, recovery tries only one at a time.
    """

    journal: Journal
    executor: Executor
    poll_timer: PollTimer
    metrics: OrderMetrics
    telemetry: Telemetry
    failpoints: Failpoints

    async def run(self) -> None:
        """Recover orders until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            statistics = repeat(self._update_statistics, _STATISTICS_SECONDS, "the statistics of orders cannot be read")
            tasks.create_task(statistics, name="statistics")
            sweeping = repeat(self._complete_leftover, _SWEEP_SECONDS, "leftover orders cannot be completed")
            tasks.create_task(sweeping, name="complete leftover orders")
            circuits = {state: circuits_of(f"recovery of {state.value}") for state in OPEN}
            await run_workers(self.poll_timer, circuits, self.journal.claim_expired, self._recover)

    async def _update_statistics(self) -> None:
        self.metrics.statistics = await self.journal.statistics()

    async def _complete_leftover(self) -> None:
        for order_id in await self.journal.complete_leftover():
            self.metrics.record_change(order_id, State.DONE)

    async def _recover(self, entry: Entry, circuit: CircuitBreaker) -> bool | None:
        """Continue an order. Return whether it was finished, or None if another worker has taken over the order."""
        # While the circuit is open, don't lengthen the order's retry delay: the circuit breaker already limits retries.
        failures = 0 if circuit.open else entry.failures
        # Start a new trace: the order's own trace ended when its worker stopped.
        links, attributes = links_to(entry.traceparent), {semconv.ORDER_FAILURES: entry.failures}
        tracer = self.telemetry.tracer
        with tracer.start_as_current_span("recover order", Context(), links=links, attributes=attributes):
            describe_order(entry.order, attempt=entry.attempt)
            await self.failpoints.reach(TAKEN_OVER)
            delay = retry_delay_seconds(failures)
            result = await self.executor.start(entry, saga.recover(entry), release_delay_seconds=delay).task
        if result is SagaResult.ENDED:
            self.metrics.recovered.add()
        if result is SagaResult.UNFINISHED and entry.failures >= _ALERT_FAILURES:
            log.error("order is stuck", order_id=entry.order_id, state=entry.state.value, failures=entry.failures)
        return None if result is SagaResult.SUPERSEDED else result is SagaResult.ENDED
