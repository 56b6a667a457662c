import re
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPMethod, HTTPStatus

import structlog
from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, StatusCode
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chassis.telemetry import semconv
from chassis.telemetry.instruments import Telemetry
from chassis.telemetry.propagation import baggage_attributes, begin_trace
from chassis.values.cards import mask_cards

log = structlog.get_logger()

CLIENT_CLOSED_REQUEST = 499  # nginx's status for a client that disconnects before it gets the response
_REQUEST_ID_HEADER = "x-request-id"
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_METHODS = frozenset(HTTPMethod)
# HSTS makes browsers refuse plain HTTP. Leave out includeSubDomains, because the domain's other hosts aren't ours.
_TLS_HEADERS = {"strict-transport-security": "max-age=31536000"}
_DEFAULT_HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
}
PAGE_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "frame-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=()",
    # "no-referrer" would make browsers send forms with `Origin: null`, which `hosts.is_foreign` rejects.
    "referrer-policy": "same-origin",
    "x-frame-options": "DENY",
}
"""Headers for HTML pages that load scripts, styles and images only from their own origin."""


def with_headers(app: ASGIApp, headers: Mapping[str, str] = _DEFAULT_HEADERS, *, always_https: bool = False) -> ASGIApp:
    """Add `headers`, and HSTS over TLS, to responses that don't set them already. The defaults are meant for JSON.

    With `always_https`, treat all requests as HTTPS, even if the proxy that terminates TLS isn't trusted to say so.
    """

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        scope = {**scope, "scheme": "https"} if always_https else scope

        async def send_with_defaults(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = MutableHeaders(scope=message)
                over_tls = _TLS_HEADERS if scope["scheme"] == "https" else {}  # trusted proxies report the scheme
                for name, value in {**headers, **over_tls}.items():
                    own.setdefault(name, value)
            await send(message)

        await app(scope, receive, send_with_defaults)

    return serve


class ObservedApplication:
    """Records a span, a duration and a log line per request, except for paths that begin with an `unobserved` prefix.

    Errors are logged with their tracebacks. If the response isn't complete, they are also re-raised, so that the
    server sends status 500 or, after the response has begun, closes the connection. If `trusts` is true, a request
    continues the client's trace and baggage. Otherwise, it starts a new trace that links to the client's.
    """

    def __init__(self, app: ASGIApp, telemetry: Telemetry, unobserved: Sequence[str], *, trusts: bool) -> None:
        self._app = app
        self._trusts = trusts
        self._unobserved = tuple(unobserved)
        self._tracer = telemetry.tracer
        self._propagation = telemetry.propagation
        self._durations = telemetry.histogram(semconv.HTTP_SERVER_DURATION)
        self._in_flight = 0
        telemetry.observe(semconv.ACTIVE_REQUESTS, lambda: [(self._in_flight, ())])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"].startswith(self._unobserved):
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        identity = _identify(scope)
        exchange = _Exchange(scope, receive, send, identity[semconv.REQUEST_ID])
        error_type: str | None = None
        with self._context(scope, identity) as span:
            try:
                await self._app(scope, exchange.receive, exchange.send)
            except ClientDisconnect:
                exchange.client_left = True
            except Exception as error:
                error_type = type(error).__name__
                log.exception("unexpected error", method=_method(scope), path=scope["path"])
                if not exchange.complete:
                    raise
            finally:
                status = CLIENT_CLOSED_REQUEST if exchange.client_left else exchange.status
                # Don't count the time that an event stream stays open: it says nothing about how fast the service is.
                ended = exchange.event_stream_started or time.perf_counter()
                self._record(scope, span, status, error_type, ended - started)
                span.end(time.time_ns() - int((time.perf_counter() - ended) * 1e9))

    @contextmanager
    def _context(self, scope: Scope, identity: Mapping[str, str]) -> Iterator[Span]:
        """Start the request's span, make it the current span, and add the request's identity to log lines."""
        given = self._propagation.extract(Headers(scope=scope).items())
        parent, links = (given, []) if self._trusts else begin_trace(given)
        attributes = {
            semconv.HTTP_METHOD: _method(scope),
            semconv.URL_PATH: mask_cards(scope["path"]),
            semconv.URL_SCHEME: scope["scheme"],
            **identity,
            **baggage_attributes(parent),
        }
        span = self._tracer.start_span(_method(scope), parent, SpanKind.SERVER, attributes, links)
        token = otel_context.attach(trace.set_span_in_context(span, parent))
        structlog.contextvars.bind_contextvars(**identity)
        self._in_flight += 1
        try:
            yield span
        finally:
            self._in_flight -= 1
            structlog.contextvars.clear_contextvars()
            otel_context.detach(token)

    def _record(self, scope: Scope, span: Span, status: int, error_type: str | None, seconds: float) -> None:
        if error_type is None and status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            error_type = str(status)
        milliseconds = round(seconds * 1000, 1)
        log.info("request", method=_method(scope), path=scope["path"], status=status, milliseconds=milliseconds)
        # Record the route instead of the path, because each id in a path would create another time series.
        route: str | None = getattr(scope.get("route"), "path_format", None)
        attributes: dict[str, str | int] = {
            semconv.HTTP_METHOD: _method(scope),
            semconv.URL_SCHEME: scope["scheme"],
            semconv.HTTP_STATUS: status,
        }
        if route is not None:
            attributes[semconv.HTTP_ROUTE] = route
            span.update_name(f"{_method(scope)} {route}")
        if error_type is not None:
            attributes[semconv.ERROR_TYPE] = error_type
            span.set_status(StatusCode.ERROR)
        span.set_attributes(attributes)
        self._durations.record(seconds, tuple(attributes.items()), span)


@dataclass
class _Exchange:
    _scope: Scope
    _receive: Receive
    _send: Send
    _request_id: str
    status: int = HTTPStatus.INTERNAL_SERVER_ERROR  # sent by the server if the application doesn't respond
    event_stream_started: float | None = None
    complete: bool = False
    client_left: bool = False

    async def receive(self) -> Message:
        message = await self._receive()
        # After a complete response, servers send `http.disconnect` even if the client is still connected.
        self.client_left |= message["type"] == "http.disconnect" and not self.complete
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            headers[_REQUEST_ID_HEADER] = self._request_id
            if headers.get("content-type", "").startswith("text/event-stream"):
                self.event_stream_started = time.perf_counter()
        is_last = message["type"] == "http.response.body" and not message.get("more_body", False)
        if is_last:  # check before sending: the server silently drops messages to a disconnected client
            self.client_left |= await Request(self._scope, self._receive).is_disconnected()
        await self._send(message)
        self.complete |= is_last


def _identify(scope: Scope) -> dict[str, str]:
    """Return the client's address and the request id. Ignore a malformed X-Request-ID, or one with a card number."""
    received = Headers(scope=scope).get(_REQUEST_ID_HEADER, "")
    is_valid = _REQUEST_ID.fullmatch(received) and mask_cards(received) == received
    identity = {semconv.REQUEST_ID: received if is_valid else uuid.uuid4().hex}
    if scope.get("client"):
        identity[semconv.CLIENT_ADDRESS] = scope["client"][0]
    return identity


def _method(scope: Scope) -> str:
    return scope["method"] if scope["method"] in _METHODS else "_OTHER"
