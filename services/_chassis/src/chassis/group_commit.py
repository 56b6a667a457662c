"""Group commit: work that arrives during a flush to disk is batched into the next flush.

A flush takes about a millisecond, whatever its size: under load many callers share one.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

WorkT = TypeVar("WorkT")
ResultT = TypeVar("ResultT")


class GroupCommit(Generic[WorkT, ResultT]):
    """Runs work in batches on one thread, in order of arrival.

    Args:
        commit: performs and flushes a batch on that thread; returns one result for each item. If it raises, every
            caller of the batch gets the error.
    """

    def __init__(self, commit: Callable[[Sequence[WorkT]], Sequence[ResultT]]) -> None:
        self._commit = commit
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="commit")
        self._committing = asyncio.Lock()
        self._pending: list[WorkT] = []
        self._next_commit: asyncio.Task[Sequence[ResultT]] | None = None

    async def run(self, work: WorkT) -> ResultT:
        """Return the result of the work once it is on disk. Cancelling the caller does not cancel the work."""
        index = len(self._pending)
        self._pending.append(work)
        if self._next_commit is None:
            self._next_commit = asyncio.create_task(self._commit_pending(), name="group commit")
        results = await asyncio.shield(self._next_commit)
        return results[index]

    async def close(self) -> None:
        """Finish pending work and end the thread."""
        if self._next_commit is not None:
            await asyncio.wait([self._next_commit])
        async with self._committing:
            self._thread.shutdown()

    async def _commit_pending(self) -> Sequence[ResultT]:
        async with self._committing:
            batch, self._pending, self._next_commit = self._pending, [], None
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._commit, batch)
