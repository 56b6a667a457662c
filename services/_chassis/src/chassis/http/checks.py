"""Answers requests that must not reach the application: probes, and requests with a wrong host or ambiguous length."""

from collections.abc import Awaitable, Callable, Mapping

import structlog
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from chassis.telemetry import semconv
from chassis.telemetry.instruments import Telemetry
from chassis.values.hosts import host_problem

log = structlog.get_logger()


def with_allowed_hosts(app: ASGIApp, allowed: frozenset[str], telemetry: Telemetry) -> ASGIApp:
    """Refuse hosts that aren't allowed with 421 and malformed hosts with 400."""
    # Starlette's TrustedHostMiddleware sends 400 for both.
    refuse = _refusal("host", telemetry)

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        problem = host_problem(Headers(scope=scope).get("host"), allowed)  # h11 refuses repeated Host headers
        respond = app if problem is None else refuse(*problem)
        await respond(scope, receive, send)

    return serve


def with_one_length(app: ASGIApp, telemetry: Telemetry) -> ASGIApp:
    """Refuse a request with both Content-Length and Transfer-Encoding, and close its connection.

    A proxy may disagree about where such a request ends, and treat the rest as another request (request smuggling).
    """
    refuse = _refusal("length", telemetry)

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        has_both = {"content-length", "transfer-encoding"}.issubset(Headers(scope=scope).keys())
        respond = refuse(400, "Bad Request", {"connection": "close"}) if has_both else app
        await respond(scope, receive, send)

    return serve


def _refusal(reason: str, telemetry: Telemetry) -> Callable[..., ASGIApp]:
    """Return a function that counts and logs a refused request and returns the response to send."""
    refusals = telemetry.counter(semconv.HTTP_REFUSALS)

    def refuse(status: int, text: str, headers: Mapping[str, str] | None = None) -> ASGIApp:
        refusals.add(1, ((semconv.HTTP_REFUSAL_REASON, reason),))
        log.warning("request refused", reason=reason)
        return JSONResponse({"error": text}, status, headers)

    return refuse


def with_probes(app: ASGIApp, is_ready: Callable[[], Awaitable[bool]]) -> ASGIApp:
    """Answer Kubernetes probes: `/healthz` always succeeds, `/readyz` succeeds while the service is ready."""

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
