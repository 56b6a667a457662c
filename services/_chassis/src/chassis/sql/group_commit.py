"""Group commit: writes that arrive during one flush to disk share the next flush. A larger flush takes no longer."""

import asyncio
import math
import threading
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Generic, TypeAlias, TypeVar

from chassis.telemetry import semconv
from chassis.telemetry.instruments import Telemetry

# If the last flush was this fast, flush on the event loop: a thread would add 50 µs. Slower flushes run in a thread.
_ON_EVENT_LOOP_SECONDS = 0.001
# A batch that takes this long to fail was waiting for a lock. Don't retry its items one by one: each would wait again.
_WAITED_SECONDS = 1.0

WorkT = TypeVar("WorkT")
ResultT = TypeVar("ResultT")
Commit: TypeAlias = Callable[[Sequence[WorkT], float], Sequence[ResultT]]
"""Executes a batch, flushes it to disk, and returns one result per item. Waits up to the given number of seconds for
another process's lock; with 0, raises BlockingIOError if the lock is held."""

_Batch: TypeAlias = list[tuple[WorkT, asyncio.Future[ResultT]]]
_Outcome: TypeAlias = Sequence[ResultT] | Exception


class GroupCommit(Generic[WorkT, ResultT]):
    """Runs work in batches, in order of arrival. While the disk is fast, a batch of one runs on the event loop.

    If `commit` raises an error, each item in the batch is retried alone, unless the batch was waiting for a lock.
    """

    def __init__(self, commit: Commit[WorkT, ResultT], store: str = "", telemetry: Telemetry | None = None) -> None:
        telemetry = telemetry or Telemetry()
        self._commit = commit
        self._durations = telemetry.histogram(semconv.FLUSH_DURATION)
        self._sizes = telemetry.histogram(semconv.FLUSH_SIZE)
        self._labels = ((semconv.FLUSH_STORE, store),)
        self._pending: _Batch[WorkT, ResultT] = []
        self._last_seconds = 0.0
        self._idle = asyncio.Event()
        self._idle.set()
        self._thread: threading.Thread | None = None
        self._batches: SimpleQueue[_Batch[WorkT, ResultT] | None] = SimpleQueue()

    async def run(self, work: WorkT) -> ResultT:
        """Commit the work and return its result once it is on disk. Cancelling the caller doesn't cancel the work."""
        loop = asyncio.get_running_loop()
        result: asyncio.Future[ResultT] = loop.create_future()
        self._pending.append((work, result))
        if self._idle.is_set():
            self._idle.clear()
            # Commit in the loop's next iteration, so that the batch includes the work that other tasks add before then.
            loop.call_soon(self._commit_pending, loop)
        return await result

    async def close(self) -> None:
        await self._idle.wait()
        self._batches.put(None)

    def _commit_pending(self, loop: asyncio.AbstractEventLoop) -> None:
        batch, self._pending = self._pending, []
        outcome: _Outcome[ResultT] = BlockingIOError()
        if len(batch) == 1 and self._last_seconds <= _ON_EVENT_LOOP_SECONDS:
            outcome = self._perform(batch, 0)
        if not isinstance(outcome, BlockingIOError):
            self._finish(loop, [(batch, outcome)])
            return
        if self._thread is None:
            # Handing a batch to a thread through a queue takes a third as long as through an executor.
            self._thread = threading.Thread(target=self._work, args=[loop], name="commit", daemon=True)
            self._thread.start()
        self._batches.put(batch)

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        while batch := self._batches.get():
            outcome = self._perform(batch, math.inf)
            parts = [(batch, outcome)]
            if isinstance(outcome, Exception) and len(batch) > 1 and self._last_seconds < _WAITED_SECONDS:
                # One bad item must not make the rest of the batch fail.
                parts = [([pending], self._perform([pending], math.inf)) for pending in batch]
            loop.call_soon_threadsafe(self._finish, loop, parts)

    def _perform(self, batch: _Batch[WorkT, ResultT], wait_seconds: float) -> _Outcome[ResultT]:
        started = time.perf_counter()
        outcome: _Outcome[ResultT]
        try:
            outcome = self._commit([work for work, _ in batch], wait_seconds)
        except BlockingIOError as error:
            return error
        except Exception as error:  # noqa: BLE001 - the error is re-raised in all callers waiting for the batch
            outcome = error
        self._last_seconds = time.perf_counter() - started
        self._durations.record(self._last_seconds, self._labels)
        self._sizes.record(len(batch), self._labels)
        return outcome

    def _finish(
        self, loop: asyncio.AbstractEventLoop, parts: Sequence[tuple[_Batch[WorkT, ResultT], _Outcome[ResultT]]]
    ) -> None:
        for batch, outcome in parts:
            for index, (_, result) in enumerate(batch):
                if result.cancelled():
                    continue
                if isinstance(outcome, Exception):
                    result.set_exception(outcome)
                else:
                    result.set_result(outcome[index])
        if self._pending:
            loop.call_soon(self._commit_pending, loop)
        else:
            self._idle.set()
