"""Requests that do not reach the application: probes, for other hosts, and those that a proxy may see end elsewhere."""

from collections.abc import Awaitable, Callable

import structlog
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from chassis.telemetry import semconv
from chassis.telemetry.instruments import Telemetry
from chassis.values.hosts import host_problem

log = structlog.get_logger()


def with_allowed_hosts(app: ASGIApp, allowed: frozenset[str], telemetry: Telemetry) -> ASGIApp:
    """Refuse other hosts with 421 and malformed ones with 400; Starlette's TrustedHostMiddleware knows only 400."""
    refusals = telemetry.counter(semconv.HTTP_REFUSALS)

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        problem = host_problem(Headers(scope=scope).get("host"), allowed)  # h11 refuses several
        if problem is None:
            await app(scope, receive, send)
        else:
            refusals.add(1, ((semconv.HTTP_REFUSAL_REASON, "host"),))
            log.warning("request refused", reason="host")
            await JSONResponse({"error": problem[1]}, problem[0])(scope, receive, send)

    return serve


def with_one_length(app: ASGIApp, telemetry: Telemetry) -> ASGIApp:
    """Refuse a request with both Content-Length and Transfer-Encoding, and what follows it on the connection."""
    refusals = telemetry.counter(semconv.HTTP_REFUSALS)

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        if "content-length" in headers and "transfer-encoding" in headers:
            refusals.add(1, ((semconv.HTTP_REFUSAL_REASON, "length"),))
            log.warning("request refused", reason="length")
            await JSONResponse({"error": "Bad Request"}, 400, {"connection": "close"})(scope, receive, send)
        else:
            await app(scope, receive, send)

    return serve


def with_probes(app: ASGIApp, is_ready: Callable[[], Awaitable[bool]]) -> ASGIApp:
    """Answer the probes of Kubernetes: `/healthz` while the process runs, `/readyz` while it should get requests."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] not in {"/healthz", "/readyz"}:
            response = app
        elif scope["method"] not in {"GET", "HEAD"}:
            response = JSONResponse({"error": "Method Not Allowed"}, 405, {"allow": "GET, HEAD"})
        elif scope["path"] == "/readyz" and not await is_ready():
            response = JSONResponse({"error": "Not ready"}, 503)
        else:
            response = JSONResponse({"status": "ok"})
        await response(scope, receive, send)

    return serve
