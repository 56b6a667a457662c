"""Sends what is to be sent at about the same time in one call."""

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import structlog
from opentelemetry import trace
from opentelemetry.trace import Link, SpanContext

from chassis import semconv
from chassis.errors import REFUSALS, DomainError, Internal, Unimplemented
from chassis.telemetry import Telemetry

ItemT = TypeVar("ItemT")

log = structlog.get_logger()

MAX_ITEMS = 20
"""An order of 1,000 lines takes up to 150 kB, and a call 4 MiB."""

_ABSENT_SECONDS = 60.0
_PERHAPS_FOR_ONE: tuple[type[DomainError], ...] = (Internal, *REFUSALS)
"""Errors of a whole call that one of its items may have caused."""


@dataclass(frozen=True, slots=True)
class _Waiting(Generic[ItemT]):
    item: ItemT
    sent: asyncio.Future[None]
    context: contextvars.Context = field(default_factory=contextvars.copy_context)

    @property
    def span(self) -> SpanContext:
        return self.context.run(trace.get_current_span).get_span_context()


class Batches(Generic[ItemT]):
    """Collects items and sends MAX_ITEMS at most in one call; or each in its own, if the peer has no such call.

    Args:
        name: of the items, for logs.
        together: sends items in one call; returns an error or None for each. An error that it raises is that of every
            item, except that items are sent alone if one of them may have caused it.
        alone: sends one item.
        telemetry: for the span of a call that several sampled traces share; it links to all but its own.
        delay_seconds: how long an item waits for others.
        eager: without a delay while no call is in progress.
    """

    def __init__(
        self,
        name: str,
        together: Callable[[Sequence[ItemT]], Awaitable[Sequence[DomainError | None]]],
        alone: Callable[[ItemT], Awaitable[None]],
        telemetry: Telemetry,
        *,
        delay_seconds: float,
        eager: bool = False,
    ) -> None:
        self._name = name
        self._together = together
        self._alone = alone
        self._tracer = telemetry.tracer
        self._delay_seconds = delay_seconds
        self._eager = eager
        self._absent_until = 0.0
        self._waiting: list[_Waiting[ItemT]] = []
        self._calls: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    async def send(self, item: ItemT) -> None:
        """Return when the item is sent. Raise its error. Cancelling the caller does not stop other items."""
        loop = asyncio.get_running_loop()
        waiting = _Waiting(item, loop.create_future())
        self._waiting.append(waiting)
        if self._eager and not self._calls:
            self._start()
        elif self._timer is None:
            self._timer = loop.call_later(self._delay_seconds, self._start)
        await waiting.sent

    def _start(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = [each for each in self._waiting if not each.sent.done()], []
        for first in range(0, len(waiting), MAX_ITEMS):
            batch = waiting[first : first + MAX_ITEMS]
            # The call is part of one order's trace: of one that is sampled, if there is any. It links to the others.
            sampled = [(each.context, span) for each in batch if (span := each.span).trace_flags.sampled]
            context = sampled[0][0] if sampled else batch[0].context
            work = self._send_linked(batch, [Link(span) for _, span in sampled[1:]])
            call = asyncio.get_running_loop().create_task(work, context=context)
            self._calls.add(call)
            call.add_done_callback(self._end)

    def _end(self, call: asyncio.Task[None]) -> None:
        self._calls.discard(call)
        if self._eager and self._waiting:
            self._start()

    async def _send_linked(self, batch: Sequence[_Waiting[ItemT]], links: Sequence[Link]) -> None:
        if not links:
            return await self._send_batch(batch)
        attributes = {semconv.BATCH_SIZE: len(batch)}
        with self._tracer.start_as_current_span(f"send {self._name}", links=links, attributes=attributes):
            return await self._send_batch(batch)

    async def _send_batch(self, batch: Sequence[_Waiting[ItemT]]) -> None:
        try:
            errors = await self._send_items([waiting.item for waiting in batch])
        except Exception as error:  # noqa: BLE001 - it reaches every caller
            errors = [error] * len(batch)
        for waiting, each in zip(batch, errors, strict=True):
            if waiting.sent.done():  # its caller was cancelled
                continue
            if each is None:
                waiting.sent.set_result(None)
            else:
                waiting.sent.set_exception(each)

    async def _send_items(self, items: Sequence[ItemT]) -> Sequence[Exception | None]:
        loop = asyncio.get_running_loop()
        if loop.time() >= self._absent_until:
            try:
                return await self._together(items)
            except Unimplemented:
                self._absent_until = loop.time() + _ABSENT_SECONDS
            except _PERHAPS_FOR_ONE as error:
                log.warning("sent one by one", items=self._name, reason=error.reason)
        return await asyncio.gather(*map(self._send_alone, items))

    async def _send_alone(self, item: ItemT) -> DomainError | None:
        try:
            await self._alone(item)
        except DomainError as error:
            return error
        return None
