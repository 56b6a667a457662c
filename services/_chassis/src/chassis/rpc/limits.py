"""Limits on the resources that the clients of a port may use. `OPTIONS` sets gRPC's own limits."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import grpc

from chassis.errors import ResourceExhausted
from chassis.rpc.calls import ServicerContext
from chassis.rpc.sockets import close_connection
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
_METHOD_SHARE = 3  # on the internal port, a method gets at most one in this many places
_UNREAD_SECONDS = 1.0
_MAX_LATE_BYTES, _MAX_UNREAD_BYTES = 8 * 1024 * 1024, 16 * 1024 * 1024
_CHECKED_RESPONSES = 100
_CALL_BYTES = 32 * 1024  # memory that a call takes besides its response
_IN_FLIGHT, NO_REQUEST, _UNREAD = "in_flight", "no_request", "unread_response"


class Overloaded(ResourceExhausted):
    """The port has reached one of its limits."""


class Limiter:
    """Limits the calls on one port. Each port has its own limits, so that customers can't lock operators out.

    Attributes:
        in_flight: the number of calls that the service is working on.
        method_limit: how many of these calls may be of the same method.
        requests: calls whose requests have not arrived yet.
    """

    def __init__(self, port_name: str, limit: int, telemetry: Telemetry) -> None:
        self.attributes: Attributes = ((semconv.PORT_NAME, port_name),)
        self.limit = limit
        # Customers cause calls here, too, such as quotes: when these hang, operators still need places.
        self.method_limit = max(1, limit // _METHOD_SHARE) if port_name == "internal" else limit
        self.in_flight = 0
        self._refusals = Refusals(port_name, telemetry, _IN_FLIGHT, NO_REQUEST, _UNREAD)
        self.requests = Waits(self._refusals, NO_REQUEST, MAX_WAITS)
        self._responses: list[tuple[Any, int, str, float]] = []
        self._next_check = _CHECKED_RESPONSES

    def admit(self, of_method: int) -> None:
        """Raise Overloaded if too many calls, including this one, are in flight: in total, or of its method."""
        if self.in_flight > self.limit or of_method > self.method_limit:
            self._refusals.add(_IN_FLIGHT)
            raise Overloaded("too many calls in flight", retry_after_seconds=_SHED_RETRY_SECONDS)

    def respond(self, response: bytes, peer: str) -> bytes:
        """Count a response as unread until the current task, which serves the call, has ended. Return the response."""
        size, now = len(response) + _CALL_BYTES, time.monotonic()
        self._responses.append((asyncio.current_task(), size, peer, now))
        if len(self._responses) >= self._next_check:
            self._close_unread(_MAX_UNREAD_BYTES, now)
        return response

    def refuse_late(self) -> None:
        """Abort calls whose requests have not arrived for ten seconds, and close connections that aren't read.

        This is polled, because a timer would slow down every call.
        """
        self.requests.refuse_late()
        self._close_unread(_MAX_LATE_BYTES, time.monotonic() - _UNREAD_SECONDS)

    def _close_unread(self, max_bytes: int, before: float) -> None:
        """If unread responses older than `before` take over `max_bytes`, close the connections that hold the most."""
        self._responses = [response for response in self._responses if not response[0].done()]
        self._next_check = len(self._responses) + _CHECKED_RESPONSES
        held: Counter[str] = Counter()
        for _, size, peer, started in self._responses:
            held[peer] += size if started <= before else 0
        for peer, size in held.most_common():
            if held.total() <= max_bytes:
                return
            held[peer] -= size
            self._responses = [response for response in self._responses if response[2] != peer]
            self._refusals.add(_UNREAD)
            close_connection(peer)


@dataclass
class Waits:
    """Calls that wait for their clients. If there are too many, the connection with the most loses its oldest one."""

    _refusals: Refusals
    _reason: str
    _limit: int
    _started: dict[Any, tuple[str, float]] = field(default_factory=dict)

    async def wait(self, context: ServicerContext, awaitable: Awaitable[T], peer: str) -> T:
        """Await `awaitable` in a call's task. The call may be aborted with RESOURCE_EXHAUSTED while it waits."""
        task = asyncio.current_task()
        if len(self._started) >= self._limit:
            held = Counter([peer, *(other for other, _ in self._started.values())])
            self._refuse(max(self._started, key=lambda task: held[self._started[task][0]]))
        self._started[task] = peer, time.monotonic()
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
        """Abort calls that have waited for ten seconds."""
        latest = time.monotonic() - _REQUEST_SECONDS
        for task in [task for task, (_, started) in self._started.items() if started <= latest]:
            self._refuse(task)

    def _refuse(self, task: Any) -> None:
        del self._started[task]
        self._refusals.add(self._reason)
        task.cancel()
