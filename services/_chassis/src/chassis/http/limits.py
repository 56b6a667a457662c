"""Limits that uvicorn lacks: how long a request may take to arrive, and how many are served at once but for probes."""

import asyncio
from typing import Any

import h11
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from typing_extensions import override
from uvicorn.protocols.http.h11_impl import H11Protocol

_RETRY_AFTER_SECONDS = 5


class RequestLimits:
    """Refuses a request with 503 beyond `max_requests` in flight, and with 408 when its body takes too long to arrive.

    uvicorn's `limit_concurrency` would refuse probes too, and Kubernetes would restart the overloaded pod. A slow body,
    which takes more than `body_seconds` from the end of its head, looks to the application like a client that leaves.
    """

    def __init__(self, app: ASGIApp, *, max_requests: int, body_seconds: float) -> None:
        self._app = app
        self._max_requests = max_requests
        self._body_seconds = body_seconds
        self._in_flight = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._in_flight >= self._max_requests:
            headers = {"retry-after": str(_RETRY_AFTER_SECONDS), "connection": "close"}
            await JSONResponse({"error": "Too many connections"}, 503, headers)(scope, receive, send)
            return
        self._in_flight += 1
        try:
            await _TimedRequest(receive, send, self._body_seconds).serve(self._app, scope)
        finally:
            self._in_flight -= 1


class _TimedRequest:
    """A request whose body has a deadline until it has arrived."""

    def __init__(self, receive: Receive, send: Send, body_seconds: float) -> None:
        self._receive = receive
        self._send = send
        self._deadline: float | None = asyncio.get_running_loop().time() + body_seconds
        self._is_late = False
        self._has_response = False

    async def serve(self, app: ASGIApp, scope: Scope) -> None:
        try:
            await app(scope, self.receive, self.send)
        except ClientDisconnect:
            if not self._is_late or self._has_response:
                raise
        if self._is_late and not self._has_response:
            # Closed, because the server would go on waiting for the rest of the body.
            response = JSONResponse({"error": "Request Timeout"}, 408, {"connection": "close"})
            await response(scope, self._receive, self._send)

    async def receive(self) -> Message:
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            self._is_late = True
            raise ClientDisconnect from None
        if not message.get("more_body", False):
            self._deadline = None  # from now on the application only waits for the client to leave
        return message

    async def send(self, message: Message) -> None:
        if not self._is_late:  # what the application says about the disconnected client is of no use
            self._has_response = True
            await self._send(message)


class HeadTimeoutProtocol(H11Protocol):
    """uvicorn's HTTP/1.1, which closes a connection when the head of a request takes too long to arrive.

    uvicorn itself waits forever for a request that has begun, and for the first one of a connection.
    """

    def __init__(self, *, head_seconds: float, **options: Any) -> None:
        super().__init__(**options)
        self._head_seconds = head_seconds
        self._head_timer: asyncio.TimerHandle | None = None

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.client:  # on a socket for both versions, an IPv4 address is mapped into IPv6
            self.client = (self.client[0].removeprefix("::ffff:"), self.client[1])
        self._update_timer()

    @override
    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._update_timer()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop_timer()

    @override
    def send_400_response(self, msg: str) -> None:
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:  # another response has begun: a second one would fail as a bug of the application
            self.transport.close()

    def _update_timer(self) -> None:
        if self.conn.their_state is not h11.IDLE:  # the head has arrived
            self._stop_timer()
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(self._head_seconds, self.transport.close)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
