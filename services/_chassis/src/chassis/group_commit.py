"""Group commit: work that arrives during a flush to disk is batched into the next flush.

A flush takes from a fraction of a millisecond to several, whatever its size: under load many callers share one.
"""

import asyncio
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Generic, TypeAlias, TypeVar

WorkT = TypeVar("WorkT")
ResultT = TypeVar("ResultT")

_Batch: TypeAlias = list[tuple[WorkT, asyncio.Future[ResultT]]]
_Outcome: TypeAlias = Sequence[ResultT] | Exception


class GroupCommit(Generic[WorkT, ResultT]):
    """Runs work in batches on a thread, one after the other, in order of arrival.

    Args:
        commit: performs and flushes a batch; returns one result for each item. If it raises, every caller of the batch
            gets the error.
    """

    def __init__(self, commit: Callable[[Sequence[WorkT]], Sequence[ResultT]]) -> None:
        self._commit = commit
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
        self._batches.put(batch)

    def _commit_batches(self) -> None:
        while (batch := self._batches.get()) is not None:
            try:
                outcome: _Outcome[ResultT] = self._commit([work for work, _ in batch])
            except Exception as error:  # noqa: BLE001 - every caller of the batch gets it
                outcome = error
            _, first = batch[0]
            first.get_loop().call_soon_threadsafe(self._finish, batch, outcome)

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
