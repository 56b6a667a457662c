"""Group commit: work that arrives during a flush to disk is batched into the next flush.

A flush takes from a fraction of a millisecond to several, whatever its size: under load many callers share one.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Generic, TypeAlias, TypeVar

WorkT = TypeVar("WorkT")
ResultT = TypeVar("ResultT")
OutcomeT = TypeVar("OutcomeT")

QUICK_SECONDS = 0.001
"""A flush that takes longer delays the other calls of the process by more than its hand-over to a thread costs."""

_Batch: TypeAlias = list[tuple[WorkT, asyncio.Future[ResultT]]]
_Outcome: TypeAlias = Sequence[ResultT] | Exception


class GroupCommit(Generic[WorkT, ResultT]):
    """Runs work in batches, one after the other, in order of arrival.

    Args:
        commit: performs and flushes a batch on a thread; returns one result for each item. If it raises, every caller
            of the batch gets the error.
        try_commit: does the same on the event loop without waiting for any lock, or returns None if it would have to
            wait. It is used as long as flushes are quick, so a disk that stalls blocks the event loop for one flush.
    """

    def __init__(
        self,
        commit: Callable[[Sequence[WorkT]], Sequence[ResultT]],
        try_commit: Callable[[Sequence[WorkT]], Sequence[ResultT] | None] | None = None,
    ) -> None:
        self._commit = commit
        self._try_commit = try_commit
        self._last_was_quick = True
        self._pending: _Batch[WorkT, ResultT] = []
        self._idle = asyncio.Event()
        self._idle.set()
        self._batches: SimpleQueue[_Batch[WorkT, ResultT] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._commit_batches, name="commit", daemon=True)
        self._thread.start()

    async def run(self, work: WorkT) -> ResultT:
        """Return the result of the work once it is on disk. Cancelling the caller does not cancel the work."""
        loop = asyncio.get_running_loop()
        result: asyncio.Future[ResultT] = loop.create_future()
        self._pending.append((work, result))
        if self._idle.is_set():
            self._idle.clear()
            loop.call_soon(self._commit_pending)  # after whatever else arrives in this turn of the loop
        return await result

    async def close(self) -> None:
        """Finish pending work and end the thread."""
        await self._idle.wait()
        self._batches.put(None)
        self._thread.join()

    def _commit_pending(self) -> None:
        batch, self._pending = self._pending, []
        outcome = self._attempt(self._try_commit, batch) if self._try_commit and self._last_was_quick else None
        if outcome is None:
            self._batches.put(batch)
        else:
            self._finish(batch, outcome)

    def _commit_batches(self) -> None:
        while (batch := self._batches.get()) is not None:
            outcome = self._attempt(self._commit, batch)
            _, first = batch[0]
            first.get_loop().call_soon_threadsafe(self._finish, batch, outcome)

    def _attempt(
        self, commit: Callable[[Sequence[WorkT]], OutcomeT], batch: _Batch[WorkT, ResultT]
    ) -> OutcomeT | Exception:
        started = time.perf_counter()
        try:
            return commit([work for work, _ in batch])
        except Exception as error:  # noqa: BLE001 - every caller of the batch gets it
            return error
        finally:
            self._last_was_quick = time.perf_counter() - started < QUICK_SECONDS

    def _finish(self, batch: _Batch[WorkT, ResultT], outcome: _Outcome[ResultT]) -> None:
        for index, (_, result) in enumerate(batch):
            if result.cancelled():
                continue
            if isinstance(outcome, Exception):
                result.set_exception(outcome)
            else:
                result.set_result(outcome[index])
        if self._pending:
            self._commit_pending()
        else:
            self._idle.set()
