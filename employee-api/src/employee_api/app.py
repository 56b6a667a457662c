"""The application: routes made from the table of operations, and the table that turns errors into answers."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from opentelemetry.instrumentation.asgi import OpenTelemetryMiddleware
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Match, Route
from starlette.types import Lifespan, Scope

from chassis.errors import DomainError
from chassis.telemetry import Telemetry
from employee_api import docs, openapi
from employee_api.auth import Policy
from employee_api.boundary import Boundary, error_answer
from employee_api.errors import AuthenticationRequired, status_of
from employee_api.operations import Endpoint, Operation

_UNTRACED = "healthz,readyz"


def create_app(
    operations: Sequence[Operation], policy: Policy, telemetry: Telemetry, lifespan: Lifespan[Starlette] | None = None
) -> Starlette:
    """Put an application together that serves these operations, their description and its page."""
    routes = [*_description_routes(operations, policy), *_operation_routes(operations, policy)]
    app = Starlette(
        routes=routes,
        lifespan=lifespan,
        middleware=[
            Middleware(
                OpenTelemetryMiddleware,
                excluded_urls=_UNTRACED,
                default_span_details=_span_details(routes),
                tracer=telemetry.tracer,
                meter=telemetry.meter,
                exclude_spans=["receive", "send"],  # an export would make a span of every chunk
            ),
            Middleware(Boundary),
        ],
        exception_handlers={DomainError: _answer_domain_error, HTTPException: _answer_http_error},
    )
    app.router.redirect_slashes = False  # a path with a slash more is another path, and unknown
    return app


def _description_routes(operations: Sequence[Operation], policy: Policy) -> list[Route]:
    description = openapi.describe(operations, enforced=policy.enforced)
    page = docs.page(description)

    async def describe(_request: Request) -> Response:
        return JSONResponse(description)

    async def show(_request: Request) -> Response:
        return HTMLResponse(page, headers={"content-security-policy": docs.CONTENT_SECURITY_POLICY})

    return [Route("/openapi.json", describe), Route("/docs", show)]


def _operation_routes(operations: Sequence[Operation], policy: Policy) -> list[Route]:
    by_path: dict[str, dict[str, Endpoint]] = {}
    for operation in operations:
        by_path.setdefault(operation.path, {})[operation.method] = Endpoint(operation, policy)
    return [Route(path, _dispatch(endpoints), methods=list(endpoints)) for path, endpoints in by_path.items()]


def _dispatch(endpoints: dict[str, Endpoint]) -> Callable[[Request], Any]:
    async def serve(request: Request) -> Response:
        # The server leaves out the body of an answer to HEAD.
        method = "GET" if request.method == "HEAD" else request.method
        return await endpoints[method].serve(request)

    return serve


def _span_details(routes: Sequence[Route]) -> Callable[[Scope], tuple[str, dict[str, str]]]:
    """Name spans and metrics by route: a path with an id in it would be a name of its own for each id."""

    def details(scope: Scope) -> tuple[str, dict[str, str]]:
        for route in routes:
            if route.matches(scope)[0] is not Match.NONE:
                return f"{scope['method']} {route.path}", {"http.route": route.path}
        return scope["method"], {}

    return details


async def _answer_domain_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, DomainError)  # noqa: S101 - Starlette calls it for nothing else
    headers = {}
    if error.retry_after_seconds is not None:
        headers["retry-after"] = str(math.ceil(error.retry_after_seconds))
    if isinstance(error, AuthenticationRequired):
        headers["www-authenticate"] = "Bearer"
    return error_answer(status_of(error), error.message, headers)


async def _answer_http_error(_request: Request, error: Exception) -> Response:
    """Starlette's own: unknown path, wrong method."""
    assert isinstance(error, HTTPException)  # noqa: S101 - Starlette calls it for nothing else
    return error_answer(error.status_code, error.detail, error.headers)
