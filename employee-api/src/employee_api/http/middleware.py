"""ASGI middleware for every request: a log line, default headers, and a JSON response to unexpected errors."""

import time
from http import HTTPStatus

import structlog
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from employee_api.errors import INTERNAL
from employee_api.http.outputs import error_response

log = structlog.get_logger()

_NOT_LOGGED = frozenset({"/healthz", "/readyz"})


class RequestMiddleware:
    """Log each request. Unexpected errors get status 500, or end the connection if the response has begun."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        status: int | None = None

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers.setdefault("cache-control", "no-store")
                headers.setdefault("x-content-type-options", "nosniff")
            await send(message)

        try:
            await self._app(scope, receive, send_with_headers)
        except Exception:
            log.exception("unexpected error", method=scope["method"], path=scope["path"])
            if status is not None:
                raise
            response = error_response(HTTPStatus.INTERNAL_SERVER_ERROR, INTERNAL)
            await response(scope, receive, send_with_headers)
        finally:
            _log_request(scope, status, time.perf_counter() - started)


def _log_request(scope: Scope, status: int | None, seconds: float) -> None:
    if scope["path"] not in _NOT_LOGGED:
        milliseconds = round(seconds * 1000, 1)
        log.info("request", method=scope["method"], path=scope["path"], status=status, milliseconds=milliseconds)
