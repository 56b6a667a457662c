"""One flush to disk for all the work that gathers while the flush before it is under way.

A flush costs a millisecond, what is flushed next to nothing: under load many callers share one, and alone none waits
for another.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

WorkT = TypeVar("WorkT")
ResultT = TypeVar("ResultT")


class GroupCommit(Generic[WorkT, ResultT]):
    """Hands work to a thread of its own, in the order it came.

    Args:
        commit: does all the given work and flushes it, on that thread; returns a result for each piece. What it raises
            reaches every caller whose work it was.
    """

    def __init__(self, commit: Callable[[Sequence[WorkT]], Sequence[ResultT]]) -> None:
        self._commit = commit
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="commit")
        self._committing = asyncio.Lock()
        self._gathered: list[WorkT] = []
        self._next: asyncio.Task[Sequence[ResultT]] | None = None

    async def run(self, work: WorkT) -> ResultT:
        """Return the work's result when it is on disk. A caller who gives up does not undo it."""
        index = len(self._gathered)
        self._gathered.append(work)
        if self._next is None:
            self._next = asyncio.create_task(self._commit_gathered(), name="group commit")
        results = await asyncio.shield(self._next)
        return results[index]

    async def close(self) -> None:
        """Finish what was begun and end the thread."""
        if self._next is not None:
            await asyncio.wait([self._next])
        async with self._committing:
            self._thread.shutdown()

    async def _commit_gathered(self) -> Sequence[ResultT]:
        async with self._committing:
            work, self._gathered, self._next = self._gathered, [], None
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._commit, work)
