"""An event loop with a virtual clock, and the removal of every other source of chance."""

import asyncio
import gc
import logging
import os
import random
import selectors
import sys
import time
from collections.abc import Iterator, MutableMapping
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import structlog
from typing_extensions import override

from chassis.cache import TtlCache

EPOCH = 1_750_000_000.0
"""What `time.time()` returns at the start of a run."""


class _VirtualTime(selectors.SelectSelector):
    """What the loop waits with: it moves the clock to the next timer instead of waiting for input."""

    seconds = 0.0

    @override
    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise AssertionError("every task waits, and no timer is set: nothing can ever happen again")
        self.seconds += timeout
        return []


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


def close(loop: VirtualLoop) -> None:
    """Cancel what is left and close the loop."""
    for task in sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name()):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()


@contextmanager
def deterministic(loop: VirtualLoop) -> Iterator[None]:
    """Replace clocks and random sources of this process by simulated ones until the context is left."""
    rng = random.Random(0)  # noqa: S311 - reproducible on purpose
    state = random.getstate()
    random.seed(0)
    collecting = gc.isenabled()
    gc.disable()
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
            if collecting:
                gc.enable()


@contextmanager
def errors_in_trace(trace: list[str]) -> Iterator[None]:
    """Log errors to the trace, and nothing else: logs would take more time than the rest of a run."""

    def to_trace(_logger: object, _method: str, event: MutableMapping[str, Any]) -> Any:
        error = repr(sys.exc_info()[1]) if event.get("exc_info") else event.get("reason", "")
        trace.append(f"logged: {event.get('event')} {error}")
        raise structlog.DropEvent

    previous = structlog.get_config()
    structlog.configure([to_trace], wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    try:
        yield
    finally:
        structlog.configure(**previous)
