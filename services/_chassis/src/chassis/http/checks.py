"""Requests that do not reach the application: probes, for other hosts, and those that a proxy may see end elsewhere."""

from collections.abc import Awaitable, Callable

import structlog
from starlette.datastructures import Headers
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from chassis.telemetry import semconv
from chassis.telemetry.instruments import Telemetry
from chassis.values.hosts import host_problem

log = structlog.get_logger()


class AllowedHosts:
    """Refuses other hosts with 421 and malformed ones with 400; Starlette's TrustedHostMiddleware knows only 400."""

    def __init__(self, app: ASGIApp, allowed: frozenset[str], telemetry: Telemetry) -> None:
        self._app = app
        self._allowed = allowed
        self._refusals = telemetry.counter(semconv.HTTP_REFUSALS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        problem = host_problem(Headers(scope=scope).get("host"), self._allowed)  # h11 refuses several
        if problem is not None:
            self._refusals.add(1, ((semconv.HTTP_REFUSAL_REASON, "host"),))
            log.warning("request refused", reason="host")
            app = JSONResponse({"error": problem[1]}, problem[0])
        await app(scope, receive, send)


def with_one_length(app: ASGIApp) -> ASGIApp:
    """Refuse a request with both Content-Length and Transfer-Encoding, and what follows it on the connection."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        if "content-length" in headers and "transfer-encoding" in headers:
            log.warning("request refused", reason="length")
            await JSONResponse({"error": "Bad Request"}, 400, {"connection": "close"})(scope, receive, send)
        else:
            await app(scope, receive, send)

    return serve


class Probes:
    """Answers the probes of Kubernetes: `/healthz` while the process runs, `/readyz` while it should get requests."""

    def __init__(self, app: ASGIApp, is_ready: Callable[[], Awaitable[bool]]) -> None:
        self._app = app
        self._is_ready = is_ready

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = await self._response(scope) if scope["path"] in {"/healthz", "/readyz"} else self._app
        await app(scope, receive, send)

    async def _response(self, scope: Scope) -> Response:
        if scope["method"] not in ("GET", "HEAD"):
            return JSONResponse({"error": "Method Not Allowed"}, 405, {"allow": "GET, HEAD"})
        if scope["path"] == "/readyz" and not await self._is_ready():
            return JSONResponse({"error": "Not ready"}, 503)
        return JSONResponse({"status": "ok"})
