"""Group commit: work that arrives during a flush to disk shares the next flush.

A flush takes between a fraction of a millisecond and several milliseconds, however much it writes.
"""

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Generic, TypeAlias, TypeVar

from chassis.telemetry import semconv
from chassis.telemetry.instruments import Telemetry
from chassis.telemetry.store_operations import record_wait

# Flush to a fast disk on the event loop, because a thread adds 50 µs. A slow disk would block the loop for too long.
_ON_EVENT_LOOP_SECONDS = 0.001
# A batch that takes this long to fail was waiting for a lock. Don't retry its items one by one: each would wait again.
_WAITED_SECONDS = 1.0

WorkT = TypeVar("WorkT")
ResultT = TypeVar("ResultT")
Commit: TypeAlias = Callable[[Sequence[WorkT], float], Sequence[ResultT]]
"""Performs a batch, flushes it to disk, and returns one result per item.

The second argument is how many seconds to wait for another process's lock. If it is 0, raise BlockingIOError instead.
"""


@dataclass(slots=True, eq=False)
class _Pending(Generic[WorkT, ResultT]):
    """An item of work and its result. Times are from time.perf_counter; `started` is 0 until the batch starts."""

    work: WorkT
    result: asyncio.Future[ResultT]
    arrived: float = field(default_factory=time.perf_counter)
    started: float = 0.0


_Batch: TypeAlias = list[_Pending[WorkT, ResultT]]
_Outcome: TypeAlias = Sequence[ResultT] | Exception


class GroupCommit(Generic[WorkT, ResultT]):
    """Runs work in batches, in order of arrival. Lone items run on the event loop while the disk is fast.

    If `commit` raises an error, each item in the batch is retried alone, unless the batch was waiting for a lock.
    """

    def __init__(self, commit: Commit[WorkT, ResultT], store: str = "", telemetry: Telemetry | None = None) -> None:
        telemetry = telemetry or Telemetry()
        self._commit = commit
        self._tracer = telemetry.tracer
        self._durations = telemetry.histogram(semconv.FLUSH_DURATION)
        self._sizes = telemetry.histogram(semconv.FLUSH_SIZE)
        self._labels = ((semconv.FLUSH_STORE, store),)
        self._pending: _Batch[WorkT, ResultT] = []
        self._last_seconds = 0.0
        self._committing: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="commit")

    async def run(self, work: WorkT) -> ResultT:
        """Commit the work and return its result once it is on disk. Cancelling the caller doesn't cancel the work."""
        loop = asyncio.get_running_loop()
        pending: _Pending[WorkT, ResultT] = _Pending(work, loop.create_future())
        self._pending.append(pending)
        if self._committing is None:
            # The task starts in the loop's next iteration, so its batch includes work that other tasks add by then.
            self._committing = loop.create_task(self._commit_pending(), name="commit")
        try:
            return await pending.result
        finally:
            record_wait(self._tracer, "flush.wait", pending.arrived, pending.started)

    async def close(self) -> None:
        """Finish the pending work and stop the thread."""
        if self._committing is not None:
            await self._committing
        self._thread.shutdown()

    async def _commit_pending(self) -> None:
        loop = asyncio.get_running_loop()
        while self._pending:
            batch, self._pending = self._pending, []
            outcome: _Outcome[ResultT] = BlockingIOError()
            if len(batch) == 1 and self._last_seconds <= _ON_EVENT_LOOP_SECONDS:
                outcome = self._perform(batch, 0)
            if isinstance(outcome, BlockingIOError):
                outcome = await loop.run_in_executor(self._thread, self._perform, batch, math.inf)
            if isinstance(outcome, Exception) and len(batch) > 1 and self._last_seconds < _WAITED_SECONDS:
                for pending in batch:  # a bad item must not fail the other items
                    outcome = await loop.run_in_executor(self._thread, self._perform, [pending], math.inf)
                    self._finish([pending], outcome)
            else:
                self._finish(batch, outcome)
        self._committing = None

    def _perform(self, batch: _Batch[WorkT, ResultT], wait_seconds: float) -> _Outcome[ResultT]:
        started = time.perf_counter()
        for pending in batch:
            pending.started = started
        outcome: _Outcome[ResultT]
        try:
            outcome = self._commit([pending.work for pending in batch], wait_seconds)
        except BlockingIOError as error:
            return error
        except Exception as error:  # noqa: BLE001 - raised in all callers that wait for the batch
            outcome = error
        self._last_seconds = time.perf_counter() - started
        self._durations.record(self._last_seconds, self._labels)
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
