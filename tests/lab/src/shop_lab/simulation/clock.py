"""An event loop with a virtual clock, and the removal of every other source of chance."""

import asyncio
import heapq
import os
import random
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import Context, copy_context
from itertools import count
from typing import Any, TypeVar
from unittest import mock

from typing_extensions import override

from chassis.rpc.cache import TtlCache

T = TypeVar("T")

EPOCH = 1_750_000_000.0
"""What `time.time()` returns at the start of a run."""


class WallClock:
    """The wall clock of one machine, which can be set."""

    def __init__(self, loop: "VirtualLoop") -> None:
        self._loop = loop
        self._ahead_seconds = 0.0

    def now(self) -> float:
        """Return the seconds since 1970."""
        return self._loop.wall_clock() + self._ahead_seconds

    def jump(self, seconds: float) -> None:
        """Set the clock forward, or back by negative seconds."""
        self._ahead_seconds += seconds


class Deadlock(AssertionError):
    """Every task waits, and no timer is set: nothing can ever happen again."""


class _Handle:
    """A callback that is going to run, unless it is cancelled: what asyncio.TimerHandle is, at half of its cost."""

    __slots__ = ("_args", "_callback", "_context", "_when")

    def __init__(self, callback: Callable[..., object], args: Any, context: Context | None, when: float) -> None:
        self._callback: Callable[..., object] | None = callback
        self._args = args
        self._context = copy_context() if context is None else context
        self._when = when

    def cancel(self) -> None:
        self._callback = None

    def cancelled(self) -> bool:
        return self._callback is None

    def when(self) -> float:
        return self._when

    def run(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._callback is None:
            return
        try:
            self._context.run(self._callback, *self._args)
        except Exception as error:  # noqa: BLE001 - the loop reports it
            loop.call_exception_handler({"message": f"error in {self._callback}", "exception": error})


class VirtualLoop(asyncio.BaseEventLoop):
    """An event loop that moves its clock to the next timer instead of waiting for it. It has no I/O and no threads.

    Callbacks of the same time run in the order in which they were scheduled.
    """

    def __init__(self) -> None:
        super().__init__()
        self._seconds = 0.0
        self._soon: deque[_Handle] = deque()
        self._timers: list[tuple[float, int, _Handle]] = []
        self._numbers = count()
        self.errors: list[str] = []
        self.set_exception_handler(lambda _, context: self.errors.append(repr(context)))

    @override
    def time(self) -> float:
        return self._seconds

    def wall_clock(self) -> float:
        """Return the simulated seconds since 1970."""
        return EPOCH + self._seconds

    @override
    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> Any:  # type: ignore[override]
        handle = _Handle(callback, args, context, self._seconds)
        self._soon.append(handle)
        return handle

    @override
    def call_later(self, delay: float, callback: Any, *args: Any, context: Context | None = None) -> Any:  # type: ignore[override]
        return self.call_at(self._seconds + delay, callback, *args, context=context)

    @override
    def call_at(self, when: float, callback: Any, *args: Any, context: Context | None = None) -> Any:  # type: ignore[override]
        handle = _Handle(callback, args, context, when)
        heapq.heappush(self._timers, (when, next(self._numbers), handle))
        return handle

    def _run_once(self) -> None:
        """Run the callbacks that are ready. If there are none, advance the clock to the next timer."""
        soon, timers = self._soon, self._timers
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
        if not soon:
            if not timers:
                raise Deadlock("nothing is left to do, and the run has not ended")
            self._seconds = max(self._seconds, timers[0][0])
        while timers and timers[0][0] <= self._seconds:
            soon.append(heapq.heappop(timers)[2])
        for _ in range(len(soon)):
            soon.popleft().run(self)

    def run_in_executor(self, *_: Any) -> Any:  # type: ignore[override]
        raise AssertionError("threads are not deterministic")

    def _write_to_self(self) -> None:
        """Do nothing: no other thread wakes this loop."""


def run_to_end(loop: VirtualLoop, work: Coroutine[Any, Any, T]) -> T:
    """Run the work, then cancel what is left and close the loop."""
    try:
        return loop.run_until_complete(work)
    finally:
        for task in sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name()):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()


@contextmanager
def deterministic(loop: VirtualLoop, seed: int) -> Iterator[None]:
    """Replace clocks and random sources of this process by simulated ones until the context is left."""
    rng = random.Random(seed)  # noqa: S311 - reproducible on purpose
    state = random.getstate()
    random.seed(seed)
    with ExitStack() as stack:
        for target, name, value in (
            (time, "time", loop.wall_clock),
            (time, "time_ns", lambda: int(loop.wall_clock() * 1e9)),
            (time, "monotonic", loop.time),
            (os, "urandom", rng.randbytes),
            (random, "_urandom", rng.randbytes),
            # These make a system call each time, which takes longer than anything else here.
            (asyncio, "get_running_loop", lambda: loop),
            (asyncio.events, "get_running_loop", lambda: loop),
        ):
            stack.enter_context(mock.patch.object(target, name, value))
        # The default of an argument was evaluated at import.
        stack.enter_context(mock.patch.dict(TtlCache.__init__.__kwdefaults__ or {}, clock=loop.time))
        try:
            yield
        finally:
            random.setstate(state)
