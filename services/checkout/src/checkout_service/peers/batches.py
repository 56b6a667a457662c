"""Sends items of about the same time in one call."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Generic, TypeVar

import structlog
from opentelemetry import trace
from opentelemetry.trace import Link, SpanContext

from chassis.errors import REFUSALS, DomainError, FailedPrecondition, Internal, Unimplemented
from chassis.telemetry import semconv
from chassis.telemetry.instruments import Telemetry
from checkout_service.peers.batcher import Batch, Batcher, Waiting

ItemT = TypeVar("ItemT")

log = structlog.get_logger()

# An order of 1,000 lines takes up to 150 kB, and a call 4 MiB.
MAX_ITEMS = 20

_ABSENT_SECONDS = 60.0
# Errors of a whole call that one of its items may have caused.
_PERHAPS_FOR_ONE: tuple[type[DomainError], ...] = (Internal, *REFUSALS)


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
        self._absent_until = 0.0
        self._batcher: Batcher[ItemT, None] = Batcher(
            self._begin, max_items=MAX_ITEMS, delay_seconds=delay_seconds, eager=eager
        )

    def send(self, item: ItemT) -> asyncio.Future[None]:
        """Return a future that ends when the item is sent, or has its error. To cancel it does not stop other items."""
        return self._batcher.add(item)

    def _begin(self, batch: Batch[ItemT, None]) -> "asyncio.Task[None]":
        # The call is part of one order's trace: of one that is sampled, if there is any. It links to the others.
        sampled = [(waiting.context, span) for waiting in batch if (span := _span(waiting)).trace_flags.sampled]
        context = sampled[0][0] if sampled else batch[0].context
        work = self._send_linked(batch, [Link(span) for _, span in sampled[1:]])
        return asyncio.get_running_loop().create_task(work, context=context)

    async def _send_linked(self, batch: Batch[ItemT, None], links: Sequence[Link]) -> None:
        if not links:
            return await self._send_batch(batch)
        attributes = {semconv.BATCH_SIZE: len(batch)}
        with self._tracer.start_as_current_span(f"send {self._name}", links=links, attributes=attributes):
            return await self._send_batch(batch)

    async def _send_batch(self, batch: Batch[ItemT, None]) -> None:
        try:
            errors = await self._send_items([waiting.item for waiting in batch])
        except Exception as raised:  # noqa: BLE001 - it reaches every caller
            errors = [raised] * len(batch)
        for waiting, error in zip(batch, errors, strict=True):
            if waiting.result.done():  # its caller was cancelled
                continue
            if error is None:
                waiting.result.set_result(None)
            else:
                waiting.result.set_exception(error)

    async def _send_items(self, items: Sequence[ItemT]) -> Sequence[Exception | None]:
        loop = asyncio.get_running_loop()
        if loop.time() >= self._absent_until:
            try:
                return await self._together(items)
            except Unimplemented:  # perhaps from a proxy, or a replica of an older release
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


def errors_of(count: int, refused: Iterable[tuple[int, str]]) -> list[DomainError | None]:
    """Return an error for each refused item of a call, given by index and reason; None for the others."""
    errors: list[DomainError | None] = [None] * count
    for index, reason in refused:
        errors[index] = FailedPrecondition("refused", reason=reason)
    return errors


def _span(waiting: Waiting[ItemT, None]) -> SpanContext:
    return waiting.context.run(trace.get_current_span).get_span_context()
