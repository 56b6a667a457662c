"""Limits on the resources that the clients of a port may use. `OPTIONS` sets gRPC's own limits."""

import asyncio
import time
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import grpc

from chassis.errors import ResourceExhausted
from chassis.rpc.calls import ServicerContext
from chassis.telemetry import semconv
from chassis.telemetry.instruments import Telemetry
from chassis.telemetry.metrics import Attributes
from chassis.telemetry.refusals import Refusals

T = TypeVar("T")

OPTIONS = (
    ("grpc.max_concurrent_streams", 100),
    # By default, ended streams count until their memory is freed, so gRPC would refuse clients within the limit.
    ("grpc.http.overload_protection", 0),
    # Bound the memory of a stream that isn't read. With bdp_probe, gRPC would resize the buffer at run time.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 16 * 1024),
    # Limit the calls that wait for Python to accept them, because they take memory. gRPC cancels excess calls.
    ("grpc.server.max_pending_requests", 500),
    ("grpc.server.max_pending_requests_hard_limit", 500),
    ("grpc.server_handshake_timeout_ms", 10_000),
    # Until a client acknowledges our settings, gRPC accepts 16 MiB of headers per call, so drop slow clients.
    ("grpc.http2.settings_timeout", 10_000),
    # By default, a busy connection gets a 4 MiB buffer.
    ("grpc.experimental.tcp_max_read_chunk_size", 64 * 1024),
)

_SHED_RETRY_SECONDS = 0.5
_REQUEST_SECONDS = 10.0
MAX_WAITS = 100
_MAX_UNREAD_BYTES = 32 * 1024 * 1024
_CHECKED_RESPONSES = 100
_CALL_BYTES = 16 * 1024  # memory that a call takes besides its response
_IN_FLIGHT, NO_REQUEST, _UNREAD = "in_flight", "no_request", "unread_response"


class Overloaded(ResourceExhausted):
    """The port has reached one of its limits."""


class Limiter:
    """Limits the calls on one port. Each port has its own limits, so that customers can't lock operators out.

    Attributes:
        in_flight: the number of calls that the service is working on.
        requests: calls whose requests have not arrived yet.
    """

    def __init__(self, port_name: str, limit: int, telemetry: Telemetry) -> None:
        self.attributes: Attributes = ((semconv.PORT_NAME, port_name),)
        self.limit = limit
        self.in_flight = 0
        self._refusals = Refusals(port_name, telemetry, _IN_FLIGHT, NO_REQUEST, _UNREAD)
        self.requests = Waits(self._refusals, NO_REQUEST, MAX_WAITS)
        self._responses: list[tuple[Any, int]] = []
        self._next_check = _CHECKED_RESPONSES
        self._is_full = False

    def admit(self) -> None:
        """Raise Overloaded if too many calls, including this one, are in flight, or too many responses are unread."""
        if len(self._responses) >= self._next_check:
            self._forget_read()
        if self._is_full or self.in_flight > self.limit:
            self._refusals.add(_UNREAD if self._is_full else _IN_FLIGHT)
            raise Overloaded("too many calls in flight", retry_after_seconds=_SHED_RETRY_SECONDS)

    def respond(self, response: bytes) -> bytes:
        """Count a response as unread until the current task, which serves the call, has ended. Return the response."""
        self._responses.append((asyncio.current_task(), len(response) + _CALL_BYTES))
        return response

    def _forget_read(self) -> None:
        # This runs only now and then, because a callback on each task would slow down every call.
        self._responses = [(task, size) for task, size in self._responses if not task.done()]
        self._is_full = sum(size for _, size in self._responses) > _MAX_UNREAD_BYTES
        self._next_check = 0 if self._is_full else len(self._responses) + _CHECKED_RESPONSES


@dataclass
class Waits:
    """Calls that wait for their clients. If there are too many, the call that has waited longest is aborted."""

    _refusals: Refusals
    _reason: str
    _limit: int
    _started: dict[Any, float] = field(default_factory=dict)

    async def wait(self, context: ServicerContext, awaitable: Awaitable[T]) -> T:
        """Await `awaitable` in a call's task. The call may be aborted with RESOURCE_EXHAUSTED while it waits."""
        task = asyncio.current_task()
        if len(self._started) >= self._limit:
            self._refuse(next(iter(self._started)))
        self._started[task] = time.monotonic()
        try:
            return await awaitable
        except asyncio.CancelledError:
            if task in self._started:  # cancelled by the client
                raise
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "waited too long for the client")
            raise
        finally:
            self._started.pop(task, None)

    def refuse_late(self) -> None:
        """Abort calls that have waited for ten seconds. This is polled, because a timer would slow down every call."""
        latest = time.monotonic() - _REQUEST_SECONDS
        for task in [task for task, started in self._started.items() if started <= latest]:
            self._refuse(task)

    def _refuse(self, task: Any) -> None:
        del self._started[task]
        self._refusals.add(self._reason)
        task.cancel()
