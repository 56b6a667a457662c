"""Wraps the ASGI application of an HTTP service: probes, and for every other request a span, a duration and a log line.

Responses that do not state otherwise are neither cached nor interpreted as another type than theirs.
"""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import Token
from email.utils import formatdate

import structlog
from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, StatusCode
from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chassis.http.protocol import CLIENT_CLOSED_REQUEST, PROBE_PATHS, ended_with
from chassis.http.requests import REQUEST_ID_HEADER, identify
from chassis.telemetry import logging, semconv
from chassis.telemetry.instruments import Telemetry
from chassis.telemetry.metrics import Attributes
from chassis.telemetry.propagation import baggage_attributes

log = structlog.get_logger()

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE"})
_SERVER_ERROR = 500


class Probes:
    """Answers `/healthz` and `/readyz`, which are neither traced nor logged, and passes on every other request.

    Args:
        app: the application.
        is_ready: whether the service should receive requests.
    """

    def __init__(self, app: ASGIApp, is_ready: Callable[[], Awaitable[bool]]) -> None:
        self._app = app
        self._is_ready = is_ready

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] in PROBE_PATHS:
            response = await self._response(scope["method"], scope["path"])
            await response(scope, receive, _Sent(send).send)
        else:
            await self._app(scope, receive, send)

    async def _response(self, method: str, path: str) -> Response:
        if method not in ("GET", "HEAD"):
            return JSONResponse({"error": "Method Not Allowed"}, 405, {"allow": "GET, HEAD"})
        if path == "/readyz" and not await self._is_ready():
            return JSONResponse({"error": "Not ready"}, 503)
        return JSONResponse({"status": "ok"})


class ObservedApplication:
    """Records a span, a duration and a log line per request, but for requests below one of the `unobserved` paths.

    An exception of the application is logged with its traceback. It is raised again unless the application has sent a
    whole response nevertheless: the server then sends status 500, or ends the connection in the middle of a response.
    A client that leaves before it has the response is no error: the request is recorded with status 499.
    """

    def __init__(self, app: ASGIApp, telemetry: Telemetry, unobserved: Sequence[str] = ()) -> None:
        self._app = app
        self._unobserved = tuple(unobserved)
        self._tracer = telemetry.tracer
        self._propagation = telemetry.propagation
        self._durations = telemetry.histogram(semconv.HTTP_SERVER_DURATION)
        self._in_flight = 0
        telemetry.observe(semconv.ACTIVE_REQUESTS, lambda: [(self._in_flight, ())])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["path"].startswith(self._unobserved):
            await self._app(scope, receive, _Sent(send).send)
            return
        started = time.perf_counter()
        identity = identify(scope)
        log_fields = logging.request_fields.set(identity)
        span, token = self._start_span(scope, identity)
        sent = _Sent(send, {REQUEST_ID_HEADER: identity[semconv.REQUEST_ID]})
        error_type: str | None = None
        ended: int | None = None
        self._in_flight += 1
        try:
            await self._app(scope, receive, sent.send)
        except ClientDisconnect:
            ended = CLIENT_CLOSED_REQUEST
        except Exception as error:
            error_type = type(error).__name__
            log.exception("unexpected error", method=scope["method"], path=scope["path"])
            if not sent.complete:
                raise
        finally:
            self._in_flight -= 1
            status = ended_with(scope) or ended or sent.status or _SERVER_ERROR
            self._record(scope, span, status, error_type, time.perf_counter() - started)
            otel_context.detach(token)
            logging.request_fields.reset(log_fields)

    def _start_span(self, scope: Scope, identity: Mapping[str, str]) -> tuple[Span, Token[Context]]:
        """Start the request's span and make it current."""
        parent = self._propagation.extract(
            {
                name: value.decode("latin-1")
                for key, value in scope["headers"]
                if (name := key.decode("latin-1")) in self._propagation.headers
            }
        )
        attributes = {
            semconv.HTTP_METHOD: _method(scope),
            semconv.URL_PATH: scope["path"],
            semconv.URL_SCHEME: scope["scheme"],
            **identity,
            **baggage_attributes(parent),
        }
        span = self._tracer.start_span(_method(scope), parent, SpanKind.SERVER, attributes)
        return span, otel_context.attach(trace.set_span_in_context(span, parent))

    def _record(self, scope: Scope, span: Span, status: int, error_type: str | None, seconds: float) -> None:
        if error_type is None and status >= _SERVER_ERROR:
            error_type = str(status)
        milliseconds = round(seconds * 1000, 1)
        log.info("request", method=scope["method"], path=scope["path"], status=status, milliseconds=milliseconds)
        # Named by route: paths with ids in them would make series without bound.
        route: str | None = getattr(scope.get("route"), "path", None)
        if span.is_recording():
            if route is not None:
                span.update_name(f"{_method(scope)} {route}")
                span.set_attribute(semconv.HTTP_ROUTE, route)
            span.set_attribute(semconv.HTTP_STATUS, status)
            if error_type is not None:
                span.set_attribute(semconv.ERROR_TYPE, error_type)
                span.set_status(StatusCode.ERROR)
        span.end()
        attributes: Attributes = (
            (semconv.HTTP_METHOD, _method(scope)),
            (semconv.URL_SCHEME, scope["scheme"]),
            (semconv.HTTP_STATUS, status),
            *(((semconv.HTTP_ROUTE, route),) if route is not None else ()),
            *(((semconv.ERROR_TYPE, error_type),) if error_type is not None else ()),
        )
        self._durations.record(seconds, attributes, span.get_span_context())


class _Sent:
    """What has been sent of a response, with the default headers and the given ones added."""

    def __init__(self, send: Send, headers: Mapping[str, str] | None = None) -> None:
        self.status: int | None = None
        self.complete = False
        self._send = send
        self._headers = headers or {}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            headers.update(self._headers)
            headers.setdefault("date", formatdate(usegmt=True))
            headers.setdefault("cache-control", "no-store")
            headers.setdefault("x-content-type-options", "nosniff")
        await self._send(message)
        self.complete = message["type"] == "http.response.body" and not message.get("more_body", False)


def _method(scope: Scope) -> str:
    return scope["method"] if scope["method"] in _METHODS else "_OTHER"
