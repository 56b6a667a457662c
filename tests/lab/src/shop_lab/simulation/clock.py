"""An event loop with a virtual clock, and the removal of every other source of chance."""

import asyncio
import os
import random
import selectors
import time
from collections.abc import Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar
from unittest import mock

from typing_extensions import override

from chassis.rpc.cache import TtlCache

T = TypeVar("T")

EPOCH = 1_750_000_000.0
"""What `time.time()` returns at the start of a run."""


class Deadlock(AssertionError):
    """Every task waits, and no timer is set: nothing can ever happen again."""


class _VirtualTime(selectors.BaseSelector):
    """What the loop waits with: it has no input, so it moves the clock to the next timer instead of waiting for it."""

    def __init__(self) -> None:
        self.seconds = 0.0

    @override
    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Deadlock("nothing is left to do, and the run has not ended")
        self.seconds += timeout
        return []

    @override
    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return selectors.SelectorKey(fileobj, -1, events, data)

    @override
    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        raise KeyError(fileobj)

    @override
    def get_map(self) -> dict[Any, selectors.SelectorKey]:
        return {}


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop with a virtual clock. It has no I/O and no threads."""

    def __init__(self) -> None:
        self._virtual_time = _VirtualTime()
        super().__init__(self._virtual_time)
        self.errors: list[str] = []
        self.set_exception_handler(lambda _, context: self.errors.append(repr(context)))

    @override
    def time(self) -> float:
        return self._virtual_time.seconds

    def wall_clock(self) -> float:
        """Return the simulated seconds since 1970."""
        return EPOCH + self.time()

    def run_in_executor(self, *_: Any) -> Any:  # type: ignore[override]
        raise AssertionError("threads are not deterministic")


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
