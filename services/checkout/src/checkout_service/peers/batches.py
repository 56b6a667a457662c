"""Sends what is to be sent at about the same time in one call."""

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from opentelemetry import trace

from chassis.errors import DomainError

ItemT = TypeVar("ItemT")


@dataclass(frozen=True, slots=True)
class _Waiting(Generic[ItemT]):
    item: ItemT
    sent: asyncio.Future[None]
    context: contextvars.Context = field(default_factory=contextvars.copy_context)

    @property
    def sampled(self) -> bool:
        span = self.context.run(trace.get_current_span)
        return span.get_span_context().trace_flags.sampled


class Batches(Generic[ItemT]):
    """Collects items and sends them in batches.

    Args:
        send: sends a batch. Returns an error or None for each item, in their order; an error that it raises is that of
            every item.
        delay_seconds: how long the first item of a batch waits for others.
        max_items: of a batch.
    """

    def __init__(
        self,
        send: Callable[[Sequence[ItemT]], Awaitable[Sequence[DomainError | None]]],
        *,
        delay_seconds: float,
        max_items: int,
    ) -> None:
        self._send = send
        self._delay_seconds = delay_seconds
        self._max_items = max_items
        self._waiting: list[_Waiting[ItemT]] = []
        self._sending: set[asyncio.Task[None]] = set()

    async def send(self, item: ItemT) -> None:
        """Return when the item is sent. Raise its error. Cancelling the caller does not stop its batch."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_later(self._delay_seconds, self._start)
        waiting = _Waiting(item, loop.create_future())
        self._waiting.append(waiting)
        await waiting.sent

    def _start(self) -> None:
        waiting, self._waiting = self._waiting, []
        for start in range(0, len(waiting), self._max_items):
            batch = waiting[start : start + self._max_items]
            # The call is a part of one order's trace: of one that is sampled, if there is any.
            context = next((each.context for each in batch if each.sampled), batch[0].context)
            task = asyncio.get_running_loop().create_task(self._send_batch(batch), context=context)
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def _send_batch(self, batch: Sequence[_Waiting[ItemT]]) -> None:
        try:
            errors: Sequence[Exception | None] = await self._send([waiting.item for waiting in batch])
        except Exception as error:  # noqa: BLE001 - it reaches every caller
            errors = [error] * len(batch)
        for waiting, each in zip(batch, errors, strict=True):
            if waiting.sent.done():  # its caller was cancelled
                continue
            if each is None:
                waiting.sent.set_result(None)
            else:
                waiting.sent.set_exception(each)
