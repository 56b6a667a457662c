"""Limits that uvicorn lacks: how long requests may take to arrive, and how many requests and connections to allow."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import h11
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from typing_extensions import override
from uvicorn.protocols.http.h11_impl import H11Protocol

from chassis.telemetry.refusals import Refusals
from chassis.values.networks import network

_RETRY_AFTER_SECONDS = 5
REFUSED = _IN_FLIGHT, _NO_REQUEST, _CONNECTION = "in_flight", "no_request", "connection"


@dataclass
class LimitedApplication:
    """Answers 503 while `max_requests` requests are in flight, and 408 if a body takes longer than `body_seconds`.

    A request counts toward `max_requests` only once its body has arrived, so clients who never send a body can't use up
    the limit. If a request is refused at that point, the application sees a disconnected client. Don't use uvicorn's
    `limit_concurrency` instead: it also refuses health probes, so Kubernetes would restart an overloaded pod.
    """

    app: ASGIApp
    refusals: Refusals
    max_requests: int
    body_seconds: float
    in_flight: int = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        deadline = asyncio.get_running_loop().time() + self.body_seconds
        await _Request(receive, send, deadline, self).serve(scope)


@dataclass
class _Request:
    _receive: Receive
    _send: Send
    _deadline: float | None
    _limited: LimitedApplication
    _is_counted: bool = False
    _refusal: Response | None = None
    _has_response: bool = False

    async def serve(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        try:
            if headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers:
                self._count()
            await self._limited.app(scope, self.receive, self.send)
        except ClientDisconnect:
            if self._refusal is None or self._has_response:
                raise
        finally:
            self._limited.in_flight -= self._is_counted
        if self._refusal is not None and not self._has_response:
            await self._refusal(scope, self._receive, self._send)

    def _count(self) -> None:
        self._is_counted, self._deadline = True, None  # the body has arrived, so the deadline no longer applies
        self._limited.in_flight += 1
        if self._limited.in_flight > self._limited.max_requests:
            headers = {"retry-after": str(_RETRY_AFTER_SECONDS), "connection": "close"}
            raise self._refused(_IN_FLIGHT, JSONResponse({"error": "Too many connections"}, 503, headers))

    def _refused(self, reason: str, response: Response) -> ClientDisconnect:
        self._limited.refusals.add(reason)
        self._refusal = response
        return ClientDisconnect()

    async def receive(self) -> Message:
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            # Close the connection: otherwise, the server would wait for the rest of the body.
            response = JSONResponse({"error": "Request Timeout"}, 408, {"connection": "close"})
            raise self._refused(_NO_REQUEST, response) from None
        if message["type"] == "http.request" and not message.get("more_body", False) and not self._is_counted:
            self._count()
        return message

    async def send(self, message: Message) -> None:
        if self._refusal is None:  # ignore the application's response to a refused request
            self._has_response = True
            await self._send(message)


@dataclass
class Connections:
    """The open connections. At the limit, a new connection replaces one that is idle or still sending its request.

    Among those, it replaces the least recently active connection in the network with the most connections. If no
    connection can be replaced, the new one is closed.
    """

    _limit: int
    _refusals: Refusals
    _open: "dict[HeadTimeoutProtocol, None]" = field(default_factory=dict)  # ordered from least to most recently active

    def add(self, added: "HeadTimeoutProtocol") -> None:
        """Add a connection or, when a known connection receives data, mark it as the most recently active."""
        self._open.pop(added, None)
        if len(self._open) >= self._limit:
            self._refusals.add(_CONNECTION)
            held = Counter(connection.network for connection in self._open)
            waiting = [found for found in self._open if found.conn.their_state in (h11.IDLE, h11.SEND_BODY)]
            closed = max(waiting, key=lambda found: held[found.network], default=added)
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
        self.network = network(self.client[0]) if self.client else ""
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
        else:  # the response has begun, so it is too late to send status 400
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
