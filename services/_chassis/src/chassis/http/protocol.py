"""uvicorn's HTTP protocol with limits: how long clients may take, and how many connections are served.

uvicorn alone waits forever for a request that has begun and for a client to read, and serves every connection.
"""

import asyncio
import json
from collections.abc import MutableMapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Literal, TypeAlias

import h11
import structlog
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from typing_extensions import override
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

log = structlog.get_logger()

PROBE_PATHS = frozenset({"/healthz", "/readyz"})
CLIENT_CLOSED_REQUEST = 499
"""The status that logs and metrics have for a request whose client left before the response was sent: nginx's."""

_Part: TypeAlias = Literal["head", "body"]

_ENDED_WITH = "chassis.ended_with"
_RETRY_AFTER_SECONDS = 5
_WARNING_INTERVAL_SECONDS = 10.0


@dataclass(frozen=True)
class ConnectionLimits:
    """Limits of a server's connections.

    Attributes:
        head_seconds: how long the head of a request may take, on a new connection from its beginning.
        body_seconds: how long the body of a request may take, from the end of its head.
        stall_seconds: how long a client may read nothing of a response that waits for it.
        connections: how many connections are served.
        probe_connections: how many further connections may exist at once. They get probes answered, and 503 for
            anything else.
    """

    head_seconds: float = 10
    body_seconds: float = 30
    stall_seconds: float = 60
    connections: int = 1000
    probe_connections: int = 64


@dataclass
class ConnectionGate:
    """The limits of a server, and the connections beyond them, oldest first."""

    limits: ConnectionLimits
    excess: "dict[LimitedProtocol, None]" = field(default_factory=dict)
    next_warning: float = 0


def ended_with(scope: Scope) -> int | None:
    """Return the status with which the server ended a request before the application could respond; None otherwise."""
    state: MutableMapping[str, Any] = scope.get("state", {})
    status: int | None = state.get(_ENDED_WITH)
    return status


class LimitedProtocol(H11Protocol):
    """A connection that is refused beyond the limit of connections, and closed when a request takes too long to arrive.

    A request that is too slow gets 408 if no response has begun. A new connection on which nothing arrives is closed
    without a response: browsers open such connections in advance.
    """

    def __init__(self, *, gate: ConnectionGate, **options: Any) -> None:
        super().__init__(**options)
        self._gate = gate
        self._awaited: tuple[_Part, object] | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._stall_check: asyncio.TimerHandle | None = None

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) - len(self._gate.excess) > self._gate.limits.connections:
            self._serve_only_probes()
        self._update_deadline()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_deadline()
        self._cancel_stall_check()
        self._gate.excess.pop(self, None)
        self._end_request(CLIENT_CLOSED_REQUEST)
        super().connection_lost(exc)

    @override
    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._update_deadline()

    @override
    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._update_deadline()

    @override
    def pause_writing(self) -> None:
        super().pause_writing()
        self._check_stall(None)

    @override
    def resume_writing(self) -> None:
        super().resume_writing()
        self._cancel_stall_check()

    @override
    def send_400_response(self, msg: str) -> None:
        self._refuse(HTTPStatus.BAD_REQUEST)

    def _update_deadline(self) -> None:
        """Start a deadline when the server begins to wait for a head or a body, and cancel it when that has arrived."""
        awaited = None if self.transport.is_closing() else self._awaited_part()
        current = None if awaited is None else (awaited, self._request)
        if current == self._awaited:
            return
        self._cancel_deadline()
        self._awaited = current
        if awaited is not None:
            limits = self._gate.limits
            seconds = limits.head_seconds if awaited == "head" else limits.body_seconds
            self._deadline = self.loop.call_later(seconds, self._time_out)

    def _awaited_part(self) -> _Part | None:
        if self.conn.their_state is h11.SEND_BODY:
            return "body"
        # Between two requests uvicorn's own timeout closes the connection, until the first byte of the next one.
        idle = self.timeout_keep_alive_task is not None and not self.conn.trailing_data[0]
        return "head" if self.conn.their_state is h11.IDLE and not idle else None

    @property
    def is_unused(self) -> bool:
        """Whether no request has arrived on the connection."""
        return self._request is None

    @property
    def _request(self) -> RequestResponseCycle | None:
        """The newest request; None before the first. uvicorn declares it as never None."""
        return self.cycle

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self._awaited = None

    def _time_out(self) -> None:
        if self._request is None and not self.conn.trailing_data[0]:
            self.transport.close()
        else:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT)

    def _check_stall(self, unsent_before: int | None) -> None:
        """Abort the connection if its client has read nothing since the last check; schedule the next check."""
        unsent = self.transport.get_write_buffer_size()
        if unsent == unsent_before:
            self.transport.abort()
        else:
            self._stall_check = self.loop.call_later(self._gate.limits.stall_seconds, self._check_stall, unsent)

    def _cancel_stall_check(self) -> None:
        if self._stall_check is not None:
            self._stall_check.cancel()
            self._stall_check = None

    def _refuse(self, status: HTTPStatus) -> None:
        """Send an error response, unless another response has begun, and close the connection."""
        self._end_request(status)
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = json.dumps({"error": status.phrase}).encode()
            headers = [
                ("content-type", "application/json"), ("content-length", str(len(body))), ("connection", "close"),
            ]  # fmt: skip
            response = h11.Response(status_code=status, headers=headers, reason=status.phrase.encode())
            for event in (response, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _end_request(self, status: int) -> None:
        """Note the status with which the request in progress ends, and send nothing more for it."""
        request = self._request
        if request is not None and not request.response_complete and not request.disconnected:
            request.scope["state"][_ENDED_WITH] = status
            request.disconnected = True
            request.message_event.set()

    def _serve_only_probes(self) -> None:
        gate = self._gate
        gate.excess[self] = None
        self.app = _ProbesOnly(self.app)
        if self.loop.time() >= gate.next_warning:
            gate.next_warning = self.loop.time() + _WARNING_INTERVAL_SECONDS
            log.warning("too many connections", limit=gate.limits.connections)
        if len(gate.excess) > gate.limits.probe_connections:
            # The oldest one has had the most time to send its request; a probe sends it at once.
            oldest = next((each for each in gate.excess if each.is_unused), next(iter(gate.excess)))
            del gate.excess[oldest]
            oldest.transport.abort()


class _ProbesOnly:
    """Passes on probes, responds with 503 to all other requests, and closes the connection."""

    def __init__(self, app: Any) -> None:
        self._app: ASGIApp = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_and_close(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), (b"connection", b"close")]
            await send(message)

        app = self._app
        if scope["path"] not in PROBE_PATHS:
            app = JSONResponse({"error": "Too many connections"}, 503, {"retry-after": str(_RETRY_AFTER_SECONDS)})
        await app(scope, receive, send_and_close)
