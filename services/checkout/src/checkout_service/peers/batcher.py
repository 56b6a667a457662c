"""Groups items that arrive at about the same time into batches."""

import asyncio
import contextvars
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeAlias, TypeVar

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class Waiting(Generic[ItemT, ResultT]):
    """An item, the result that its caller awaits, done if the caller was cancelled, and the context of the caller."""

    item: ItemT
    result: asyncio.Future[ResultT]
    context: contextvars.Context = field(default_factory=contextvars.copy_context)


Batch: TypeAlias = list[Waiting[ItemT, ResultT]]


class Batcher(Generic[ItemT, ResultT]):
    """Processes items in batches. Cancelling the caller of one item does not affect the others.

    Args:
        begin: starts to process a batch, and returns the task that sets all its results.
        max_items: of a batch.
        delay_seconds: how long an item waits for others.
        eager: process an item without delay while no other batch is being processed.
    """

    def __init__(
        self,
        begin: Callable[[Batch[ItemT, ResultT]], "asyncio.Task[None]"],
        *,
        max_items: int,
        delay_seconds: float,
        eager: bool = False,
    ) -> None:
        self._begin = begin
        self._max_items = max_items
        self._delay_seconds = delay_seconds
        self._eager = eager
        self._waiting: Batch[ItemT, ResultT] = []
        self._begun: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, item: ItemT) -> asyncio.Future[ResultT]:
        """Return the future of the item's result."""
        loop = asyncio.get_running_loop()
        waiting: Waiting[ItemT, ResultT] = Waiting(item, loop.create_future())
        self._waiting.append(waiting)
        if self._eager and not self._begun:
            self._begin_all()
        elif self._timer is None:
            self._timer = loop.call_later(self._delay_seconds, self._begin_all)
        return waiting.result

    def _begin_all(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        # Nothing is done for callers that have been cancelled in the meantime.
        pending, self._waiting = [waiting for waiting in self._waiting if not waiting.result.done()], []
        for first in range(0, len(pending), self._max_items):
            task = self._begin(pending[first : first + self._max_items])
            self._begun.add(task)
            task.add_done_callback(self._end)

    def _end(self, task: "asyncio.Task[None]") -> None:
        # What arrived while an eager batch was processed is the next one, whatever is left of its delay.
        self._begun.discard(task)
        if self._eager and self._waiting:
            self._begin_all()
