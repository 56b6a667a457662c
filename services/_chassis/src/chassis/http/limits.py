"""Limits that uvicorn lacks: how long requests may take to arrive, and how many requests and connections to allow."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import h11
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from typing_extensions import override
from uvicorn.protocols.http.h11_impl import H11Protocol

from chassis.telemetry.refusals import Refusals

_RETRY_AFTER_SECONDS = 5
REFUSED = _IN_FLIGHT, _NO_REQUEST, _CONNECTION = "in_flight", "no_request", "connection"


def with_limits(app: ASGIApp, refusals: Refusals, *, max_requests: int, body_seconds: float) -> ASGIApp:
    """Refuse requests with 503 while `max_requests` are in flight, and with 408 if a body takes over `body_seconds`.

    To the application, a late body looks like a client that disconnects. With uvicorn's `limit_concurrency`, Kubernetes
    would restart an overloaded pod, because its probes would also be refused.
    """
    in_flight = 0

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal in_flight
        if in_flight >= max_requests:
            refusals.add(_IN_FLIGHT)
            headers = {"retry-after": str(_RETRY_AFTER_SECONDS), "connection": "close"}
            await JSONResponse({"error": "Too many connections"}, 503, headers)(scope, receive, send)
            return
        in_flight += 1
        try:
            request = _TimedRequest(receive, send, asyncio.get_running_loop().time() + body_seconds)
            await request.serve(app, scope)
            if request.is_late:
                refusals.add(_NO_REQUEST)
        finally:
            in_flight -= 1

    return serve


@dataclass
class _TimedRequest:
    _receive: Receive
    _send: Send
    _deadline: float | None
    is_late: bool = False
    _has_response: bool = False

    async def serve(self, app: ASGIApp, scope: Scope) -> None:
        try:
            await app(scope, self.receive, self.send)
        except ClientDisconnect:
            if not self.is_late or self._has_response:
                raise
        if self.is_late and not self._has_response:
            # Close the connection, or the server would wait for the rest of the body.
            response = JSONResponse({"error": "Request Timeout"}, 408, {"connection": "close"})
            await response(scope, self._receive, self._send)

    async def receive(self) -> Message:
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            self.is_late = True
            raise ClientDisconnect from None
        if not message.get("more_body", False):
            self._deadline = None  # the body is complete, so nothing more can be late
        return message

    async def send(self, message: Message) -> None:
        if not self.is_late:  # a late request gets 408 instead of the response
            self._has_response = True
            await self._send(message)


@dataclass
class Connections:
    """Open connections. At the limit, a new connection replaces the longest idle one, or is closed if none is idle."""

    _limit: int
    _refusals: Refusals
    _open: "dict[HeadTimeoutProtocol, None]" = field(default_factory=dict)  # least recently active first

    def add(self, added: "HeadTimeoutProtocol") -> None:
        """Add a connection, or move it to the end when it receives data."""
        self._open.pop(added, None)
        if len(self._open) >= self._limit:
            self._refusals.add(_CONNECTION)
            closed = next((found for found in self._open if found.conn.their_state is h11.IDLE), added)
            closed.transport.close()
            self._open.pop(closed, None)
            if closed is added:
                return
        self._open[added] = None

    def remove(self, lost: "HeadTimeoutProtocol") -> None:
        self._open.pop(lost, None)


class HeadTimeoutProtocol(H11Protocol):
    """Closes a connection when a request's headers take too long to arrive; uvicorn alone would wait forever."""

    def __init__(self, *, head_seconds: float, all_open: Connections, **options: Any) -> None:
        super().__init__(**options)
        self._all_open = all_open
        self._head_seconds = head_seconds
        self._head_timer: asyncio.TimerHandle | None = None

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.client:  # a dual-stack socket reports IPv4 clients as ::ffff:1.2.3.4
            self.client = (self.client[0].removeprefix("::ffff:"), self.client[1])
        self._all_open.add(self)
        self._update_timer()

    @override
    def data_received(self, data: bytes) -> None:
        self._all_open.add(self)
        super().data_received(data)
        self._update_timer()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._all_open.remove(self)
        self._stop_timer()

    @override
    def send_400_response(self, msg: str) -> None:
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:  # a response has begun, so it is too late for status 400
            self.transport.close()

    def _update_timer(self) -> None:
        if self.conn.their_state is not h11.IDLE:  # the headers have arrived
            self._stop_timer()
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(self._head_seconds, self.transport.close)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
