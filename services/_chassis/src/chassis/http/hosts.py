"""Refuses requests for hosts that are not this server's."""

import structlog
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
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
        problem = host_problem(Headers(scope=scope).get("host"), self._allowed)  # h11 refuses several
        if problem is None:
            await self._app(scope, receive, send)
            return
        self._refusals.add(1, ((semconv.HTTP_REFUSAL_REASON, "host"),))
        log.warning("request refused", reason="host")
        await JSONResponse({"error": problem[1]}, problem[0])(scope, receive, send)
