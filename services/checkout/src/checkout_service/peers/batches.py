"""Collects items that arrive within a short time, and sends them in one call."""

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Generic, TypeAlias, TypeVar

import structlog
from opentelemetry import trace
from opentelemetry.trace import Link, SpanContext

from chassis.deadline import deadline
from chassis.errors import REFUSALS, DomainError, FailedPrecondition, Internal, Unimplemented
from chassis.rpc.status import reason_from_peer
from chassis.telemetry import semconv
from chassis.telemetry.instruments import Telemetry
from shop_internal.confirmations_pb2 import AcceptConfirmationsResponse
from shop_internal.ordered_cart_pb2 import RemoveAllOrderedResponse

ItemT = TypeVar("ItemT")
Reply: TypeAlias = AcceptConfirmationsResponse | RemoveAllOrderedResponse

log = structlog.get_logger()

# Keeps messages below gRPC's 4 MiB limit: an order with 1,000 lines takes up to 150 kB.
MAX_ITEMS = 20

_ABSENT_SECONDS = 60.0
# If a call fails with one of these errors, a single item may be the cause.
_PERHAPS_FOR_ONE: tuple[type[DomainError], ...] = (Internal, *REFUSALS)


@dataclass(frozen=True, slots=True)
class _Waiting(Generic[ItemT]):
    """A queued item, with its caller's context and the future that the caller awaits or cancels."""

    item: ItemT
    sent: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    context: contextvars.Context = field(default_factory=contextvars.copy_context)
    span: SpanContext = field(default_factory=lambda: trace.get_current_span().get_span_context())


@dataclass(eq=False)
class Batches(Generic[ItemT]):
    """Collects items and sends up to MAX_ITEMS per call, or one per call if the peer has no batch call.

    Attributes:
        name: the name of the items in logs and spans.
        together: sends items in one call, whose response lists the refused ones. If the call raises an error that a
            single item may have caused, the items are sent one by one; any other error goes to every item's caller.
        alone: sends one item.
        telemetry: records a call that serves several sampled traces as a span in one of them, linked to the others.
        delay_seconds: how long an item waits for other items to join its call.
        eager: whether to send an item at once if no call is in progress.
    """

    name: str
    together: Callable[[Sequence[ItemT]], Awaitable[Reply]]
    alone: Callable[[ItemT], Awaitable[object]]
    telemetry: Telemetry
    delay_seconds: float
    eager: bool = False
    _absent_until: float = field(default=0.0, init=False)
    _waiting: list[_Waiting[ItemT]] = field(default_factory=list, init=False)
    _calls: set[asyncio.Task[None]] = field(default_factory=set, init=False)
    _timer: asyncio.TimerHandle | None = field(default=None, init=False)

    def send(self, item: ItemT) -> asyncio.Future[None]:
        """Return a future that completes once the item is sent or has failed. Cancelling it affects no other item."""
        waiting = _Waiting(item)
        self._waiting.append(waiting)
        if self.eager and not self._calls:
            self._begin_all()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self.delay_seconds, self._begin_all)
        return waiting.sent

    def _begin_all(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        # Leave out items whose callers were cancelled.
        pending, self._waiting = [waiting for waiting in self._waiting if not waiting.sent.done()], []
        for first in range(0, len(pending), MAX_ITEMS):
            batch = pending[first : first + MAX_ITEMS]
            # Put the call in one caller's trace, preferably a sampled one, and link it to the other sampled traces.
            sampled = [(waiting.context, span) for waiting in batch if (span := waiting.span).trace_flags.sampled]
            context = sampled[0][0] if sampled else batch[0].context
            work = self._send_batch(batch, [Link(span) for _, span in sampled[1:]])
            call = asyncio.get_running_loop().create_task(work, context=context)
            self._calls.add(call)
            call.add_done_callback(self._end)

    def _end(self, call: "asyncio.Task[None]") -> None:
        # In eager mode, items that arrived during the call are sent at once instead of waiting out their delay.
        self._calls.discard(call)
        if self.eager and self._waiting:
            self._begin_all()

    async def _send_batch(self, batch: Sequence[_Waiting[ItemT]], links: Sequence[Link]) -> None:
        tracer, attributes = self.telemetry.tracer, {semconv.BATCH_SIZE: len(batch)}
        name = f"send {self.name}"
        deadline.set(None)  # don't inherit one caller's deadline
        errors: Sequence[BaseException | None]
        with tracer.start_as_current_span(name, links=links, attributes=attributes) if links else nullcontext():
            try:
                errors = await self._send_items([waiting.item for waiting in batch])
            except Exception as raised:  # noqa: BLE001 - every caller gets the error
                errors = [raised] * len(batch)
        for waiting, error in zip(batch, errors, strict=True):
            if waiting.sent.done():  # the item's caller was cancelled
                continue
            if error is None:
                waiting.sent.set_result(None)
            else:
                waiting.sent.set_exception(error)

    async def _send_items(self, items: Sequence[ItemT]) -> Sequence[BaseException | None]:
        loop = asyncio.get_running_loop()
        if loop.time() >= self._absent_until:
            try:
                reply = await self.together(items)
                reasons = {refused.index: reason_from_peer(refused.reason) for refused in reply.refused}
                errors = {index: FailedPrecondition("refused", reason=reason) for index, reason in reasons.items()}
                return [errors.get(index) for index in range(len(items))]
            except Unimplemented:  # a proxy or an older replica may have answered, so try batches again later
                self._absent_until = loop.time() + _ABSENT_SECONDS
            except _PERHAPS_FOR_ONE as error:
                log.warning("sent one by one", items=self.name, reason=error.reason)
        sent = await asyncio.gather(*map(self.alone, items), return_exceptions=True)
        return [result if isinstance(result, BaseException) else None for result in sent]
