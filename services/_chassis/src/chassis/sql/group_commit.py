"""Group commit: work that arrives during a flush to disk is batched into the next flush.

A flush takes from a fraction of a millisecond to several, whatever its size: under load many callers share one.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Generic, TypeAlias, TypeVar

from chassis.telemetry import semconv
from chassis.telemetry.instruments import Telemetry
from chassis.telemetry.store_operations import record_wait

WorkT = TypeVar("WorkT")
ResultT = TypeVar("ResultT")


@dataclass(slots=True, eq=False)
class _Pending(Generic[WorkT, ResultT]):
    """Work with its result. Times are readings of time.perf_counter; `started` is 0 until its batch starts."""

    work: WorkT
    result: asyncio.Future[ResultT]
    arrived: float = field(default_factory=time.perf_counter)
    started: float = 0.0


_Batch: TypeAlias = list[_Pending[WorkT, ResultT]]
_Outcome: TypeAlias = Sequence[ResultT] | Exception


class GroupCommit(Generic[WorkT, ResultT]):
    """Runs work in batches on a thread, one after the other, in order of arrival.

    Args:
        commit: performs and flushes a batch; returns one result for each item. If it raises, every caller of the batch
            gets the error.
        store: name of what is written, in metrics.
        telemetry: records flushes, and spans of the waits for the flush before; by default nothing.
    """

    def __init__(
        self,
        commit: Callable[[Sequence[WorkT]], Sequence[ResultT]],
        store: str = "",
        telemetry: Telemetry | None = None,
    ) -> None:
        telemetry = telemetry or Telemetry()
        self._commit = commit
        self._tracer = telemetry.tracer
        self._durations = telemetry.histogram(semconv.FLUSH_DURATION)
        self._sizes = telemetry.histogram(semconv.FLUSH_SIZE)
        self._labels = ((semconv.FLUSH_STORE, store),)
        self._pending: _Batch[WorkT, ResultT] = []
        self._committing: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="commit")

    async def run(self, work: WorkT) -> ResultT:
        """Return the result of the work once it is on disk. Cancelling the caller does not cancel the work."""
        loop = asyncio.get_running_loop()
        pending: _Pending[WorkT, ResultT] = _Pending(work, loop.create_future())
        self._pending.append(pending)
        if self._committing is None:
            # The task starts in the next turn of the loop: with what other tasks add in this one.
            self._committing = loop.create_task(self._commit_pending(), name="commit")
        try:
            return await pending.result
        finally:
            record_wait(self._tracer, "flush.wait", pending.arrived, pending.started)

    async def close(self) -> None:
        """Finish pending work and end the thread."""
        if self._committing is not None:
            await self._committing
        self._thread.shutdown()

    async def _commit_pending(self) -> None:
        loop = asyncio.get_running_loop()
        while self._pending:
            batch, self._pending = self._pending, []
            self._finish(batch, await loop.run_in_executor(self._thread, self._perform, batch))
        self._committing = None

    def _perform(self, batch: _Batch[WorkT, ResultT]) -> _Outcome[ResultT]:
        started = time.perf_counter()
        for pending in batch:
            pending.started = started
        try:
            outcome: _Outcome[ResultT] = self._commit([pending.work for pending in batch])
        except Exception as error:  # noqa: BLE001 - every caller of the batch gets it
            outcome = error
        self._durations.record(time.perf_counter() - started, self._labels)
        self._sizes.record(len(batch), self._labels)
        return outcome

    def _finish(self, batch: _Batch[WorkT, ResultT], outcome: _Outcome[ResultT]) -> None:
        for index, pending in enumerate(batch):
            if pending.result.cancelled():
                continue
            if isinstance(outcome, Exception):
                pending.result.set_exception(outcome)
            else:
                pending.result.set_result(outcome[index])
