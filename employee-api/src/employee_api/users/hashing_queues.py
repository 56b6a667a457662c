"""Shares the password threads between kinds of work: one queue for each kind, served in turn."""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from enum import Enum
from typing import Any, TypeVar

from employee_api.users.errors import TooManyPasswords

T = TypeVar("T")

# A hash takes tens of milliseconds, so the last in a full queue waits for a few seconds.
_MAX_WAITING = 200


class HashingQueue(Enum):
    """The kinds of work. A flood of one kind doubles or triples the waits of the others, whatever its size.

    A login from a device that its user has logged in from before does not queue behind guesses of strangers.
    """

    KNOWN_DEVICE = "known device"
    LOGIN = "login"
    NEW_PASSWORD = "new password"  # noqa: S105 - not a password


class HashingQueues:
    """Runs at most `threads` functions at once in an executor; at most 200 of each kind wait.

    Use it from one event loop. A caller that is cancelled while it waits leaves its queue.
    """

    def __init__(self, executor: Executor, threads: int) -> None:
        self._executor = executor
        self._free = threads
        self._waiting: dict[HashingQueue, deque[asyncio.Future[None]]] = {queue: deque() for queue in HashingQueue}

    async def run(self, queue: HashingQueue, work: Callable[[], T]) -> tuple[float, T]:
        """Run `work` and return the reading of time.perf_counter at its start, and its result.

        Raises TooManyPasswords if the queue is full.
        """
        await self._take_thread(queue)

        def timed() -> tuple[float, T]:
            return time.perf_counter(), work()

        running = asyncio.get_running_loop().run_in_executor(self._executor, timed)
        running.add_done_callback(self._pass_thread_on)
        # A hash that has begun can't be stopped, and occupies its thread until it ends.
        return await asyncio.shield(running)

    async def _take_thread(self, queue: HashingQueue) -> None:
        if self._free > 0:
            self._free -= 1
            return
        if len(self._waiting[queue]) >= _MAX_WAITING:
            raise TooManyPasswords
        turn = asyncio.get_running_loop().create_future()
        self._waiting[queue].append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self._pass_thread_on()
            elif turn in self._waiting[queue]:
                self._waiting[queue].remove(turn)
            raise

    def _pass_thread_on(self, _finished: Any = None) -> None:
        """Give a thread to the first of the next queue that is not empty."""
        for queue, waiting in list(self._waiting.items()):
            while waiting:
                turn = waiting.popleft()
                if not turn.done():  # its caller may have been cancelled a moment ago
                    # The queue that has been served moves to the end.
                    self._waiting[queue] = self._waiting.pop(queue)
                    turn.set_result(None)
                    return
        self._free += 1
