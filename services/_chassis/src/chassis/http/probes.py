"""Answers the probes of Kubernetes: `/healthz` while the process runs, `/readyz` while it should receive requests."""

from collections.abc import Awaitable, Callable

from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

PATHS = frozenset({"/healthz", "/readyz"})


class Probes:
    """Answers the probes, which are neither traced nor logged, and passes on every other request."""

    def __init__(self, app: ASGIApp, is_ready: Callable[[], Awaitable[bool]]) -> None:
        self._app = app
        self._is_ready = is_ready

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = await self._response(scope) if scope["path"] in PATHS else self._app
        await app(scope, receive, send)

    async def _response(self, scope: Scope) -> Response:
        if scope["method"] not in ("GET", "HEAD"):
            return JSONResponse({"error": "Method Not Allowed"}, 405, {"allow": "GET, HEAD"})
        if scope["path"] == "/readyz" and not await self._is_ready():
            return JSONResponse({"error": "Not ready"}, 503)
        return JSONResponse({"status": "ok"})
