"""What happens to every request, whatever it asks for: a line in the log, and an answer even to the unforeseen."""

import time
from collections.abc import Mapping

import structlog
from starlette.datastructures import MutableHeaders
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from employee_api.errors import INTERNAL

log = structlog.get_logger()

_QUIET = frozenset({"/healthz", "/readyz"})
_INTERNAL_SERVER_ERROR = 500


def error_answer(status: int, text: str, headers: Mapping[str, str] | None = None) -> Response:
    """The form of every error."""
    return JSONResponse({"error": text}, int(status), headers)


class Boundary:
    """The outermost part of the application that is ours."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request; anything else passes."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        await _Exchange(scope, send).run(self._app, receive)


class _Exchange:
    """One request and its answer."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self._scope = scope
        self._send = send
        self._status: int | None = None
        self._started = time.perf_counter()

    async def run(self, app: ASGIApp, receive: Receive) -> None:
        """Answer whatever happens; where an answer has begun already, a failure ends the connection instead."""
        try:
            await app(self._scope, receive, self._pass)
        except Exception:
            log.exception("unexpected error", method=self._scope["method"], path=self._scope["path"])
            if self._status is not None:
                raise
            await error_answer(_INTERNAL_SERVER_ERROR, INTERNAL)(self._scope, receive, self._pass)
        finally:
            self._log()

    async def _pass(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            headers = MutableHeaders(scope=message)
            headers.setdefault("cache-control", "no-store")
            headers.setdefault("x-content-type-options", "nosniff")
        await self._send(message)

    def _log(self) -> None:
        path = self._scope["path"]
        if path not in _QUIET:
            milliseconds = round((time.perf_counter() - self._started) * 1000, 1)
            log.info("request", method=self._scope["method"], path=path, status=self._status, milliseconds=milliseconds)
