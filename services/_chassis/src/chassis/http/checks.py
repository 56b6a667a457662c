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
    """Refuse disallowed hosts with 421 and malformed Host headers with 400. Starlette's own check always sends 400."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        problem = host_problem(Headers(scope=scope).get("host"), allowed)  # h11 rejects a second Host header
        respond = app if problem is None else _refusal(telemetry, "host", *problem)
        await respond(scope, receive, send)

    return serve


def with_one_length(app: ASGIApp, telemetry: Telemetry) -> ASGIApp:
    """Refuse requests with both Content-Length and Transfer-Encoding, which attackers use for request smuggling."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        has_both = {"content-length", "transfer-encoding"}.issubset(Headers(scope=scope).keys())
        respond = _refusal(telemetry, "length", 400, "Bad Request", {"connection": "close"}) if has_both else app
        await respond(scope, receive, send)

    return serve


def _refusal(
    telemetry: Telemetry, reason: str, status: int, text: str, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    telemetry.counter(semconv.HTTP_REFUSALS).add(1, ((semconv.HTTP_REFUSAL_REASON, reason),))
    log.warning("request refused", reason=reason)
    return JSONResponse({"error": text}, status, headers)


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
