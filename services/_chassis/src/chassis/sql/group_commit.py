"""Group commit: work that arrives during a flush to disk is batched into the next flush.

A flush takes from a fraction of a millisecond to several, whatever its size: under load many callers share one. Brief
work that arrives alone, on a disk that flushes quickly, is done on the event loop: see the decision in the README.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Generic, TypeAlias, TypeVar

from chassis.telemetry import semconv
from chassis.telemetry.instruments import Telemetry
from chassis.telemetry.store_operations import record_wait

QUICK_SECONDS = 0.001
"""Work is done on the event loop while the flush before took no longer."""

WorkT = TypeVar("WorkT")
ResultT = TypeVar("ResultT")


@dataclass(slots=True, eq=False)
class _Pending(Generic[WorkT, ResultT]):
    """Work with its result. Times are readings of time.perf_counter; `started` is 0 until its batch starts."""

    work: WorkT
    brief: bool
    result: asyncio.Future[ResultT]
    arrived: float = field(default_factory=time.perf_counter)
    started: float = 0.0


_Batch: TypeAlias = list[_Pending[WorkT, ResultT]]
_Outcome: TypeAlias = Sequence[ResultT] | Exception


class GroupCommit(Generic[WorkT, ResultT]):
    """Runs work in batches, one after the other, in order of arrival: on a thread, or on the event loop if `at_once`.

    Args:
        commit: performs and flushes a batch; returns one result for each item. If it raises, every caller of the batch
            gets the error.
        store: name of what is written, in metrics.
        telemetry: records flushes, and spans of the waits for the flush before; by default nothing.
        at_once: does the same for a single brief work, but raises BlockingIOError instead of waiting for a lock; by
            default all work is done on the thread.
    """

    def __init__(
        self,
        commit: Callable[[Sequence[WorkT]], Sequence[ResultT]],
        store: str = "",
        telemetry: Telemetry | None = None,
        *,
        at_once: Callable[[Sequence[WorkT]], Sequence[ResultT]] | None = None,
    ) -> None:
        telemetry = telemetry or Telemetry()
        self._commit = commit
        self._at_once = at_once
        self._last_seconds = 0.0
        self._tracer = telemetry.tracer
        self._durations = telemetry.histogram(semconv.FLUSH_DURATION)
        self._sizes = telemetry.histogram(semconv.FLUSH_SIZE)
        self._labels = ((semconv.FLUSH_STORE, store),)
        self._pending: _Batch[WorkT, ResultT] = []
        self._idle = asyncio.Event()
        self._idle.set()
        self._batches: SimpleQueue[_Batch[WorkT, ResultT] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._commit_batches, name="commit", daemon=True)
        self._thread.start()

    async def run(self, work: WorkT, *, brief: bool = False) -> ResultT:
        """Return the result of the work once it is on disk. Cancelling the caller does not cancel the work.

        `brief`: the work itself takes much less time than its flush, so that it may be done on the event loop.
        """
        loop = asyncio.get_running_loop()
        pending: _Pending[WorkT, ResultT] = _Pending(work, brief, loop.create_future())
        self._pending.append(pending)
        if self._idle.is_set():
            self._idle.clear()
            loop.call_soon(self._commit_pending)
        try:
            return await pending.result
        finally:
            record_wait(self._tracer, "flush.wait", pending.arrived, pending.started)

    async def close(self) -> None:
        """Finish pending work and end the thread."""
        await self._idle.wait()
        self._batches.put(None)
        self._thread.join()

    def _commit_pending(self) -> None:
        batch, self._pending = self._pending, []
        may_be_at_once = len(batch) == 1 and batch[0].brief and self._last_seconds <= QUICK_SECONDS
        if self._at_once is not None and may_be_at_once:
            outcome = self._perform(batch, self._at_once)
            if not isinstance(outcome, BlockingIOError):
                self._finish(batch, outcome)
                return
        self._batches.put(batch)

    def _commit_batches(self) -> None:
        while (batch := self._batches.get()) is not None:
            outcome = self._perform(batch, self._commit)
            batch[0].result.get_loop().call_soon_threadsafe(self._finish, batch, outcome)

    def _perform(
        self, batch: _Batch[WorkT, ResultT], commit: Callable[[Sequence[WorkT]], Sequence[ResultT]]
    ) -> _Outcome[ResultT]:
        started = time.perf_counter()
        for pending in batch:
            pending.started = started
        try:
            outcome: _Outcome[ResultT] = commit([pending.work for pending in batch])
        except BlockingIOError as error:  # nothing was done
            return error
        except Exception as error:  # noqa: BLE001 - every caller of the batch gets it
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
        if self._pending:
            self._commit_pending()
        else:
            self._idle.set()
