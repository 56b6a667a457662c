"""The Starlette application: routes for all operations, and the responses to errors."""

import math
from collections.abc import Awaitable, Callable, Sequence

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
from employee_api.errors import AuthenticationRequired, http_status
from employee_api.http import docs, openapi
from employee_api.http.middleware import RequestMiddleware
from employee_api.http.operations import Authorizer, Operation
from employee_api.http.outputs import error_response

_UNTRACED = "healthz,readyz"


def create_application(
    operations: Sequence[Operation], authorizer: Authorizer, telemetry: Telemetry, lifespan: Lifespan[Starlette]
) -> Starlette:
    """Create the application that serves the operations, `/openapi.json` and `/docs`."""
    routes = [*_description_routes(operations, authorizer), *_operation_routes(operations, authorizer)]
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
                exclude_spans=["receive", "send"],  # an export would create one for every chunk
            ),
            Middleware(RequestMiddleware),
        ],
        exception_handlers={DomainError: _domain_error_response, HTTPException: _http_error_response},
    )
    app.router.redirect_slashes = False  # a path with a trailing slash is unknown
    return app


def _description_routes(operations: Sequence[Operation], authorizer: Authorizer) -> list[Route]:
    document = openapi.describe(operations, enforced=authorizer.enforced)
    page = docs.page(document)

    async def serve_document(_request: Request) -> Response:
        return JSONResponse(document)

    async def serve_page(_request: Request) -> Response:
        return HTMLResponse(page, headers={"content-security-policy": docs.CONTENT_SECURITY_POLICY})

    return [Route("/openapi.json", serve_document), Route("/docs", serve_page)]


def _operation_routes(operations: Sequence[Operation], authorizer: Authorizer) -> list[Route]:
    by_path: dict[str, dict[str, Operation]] = {}
    for operation in operations:
        by_path.setdefault(operation.path, {})[operation.method] = operation
    return [
        Route(path, _dispatch(by_method, authorizer), methods=list(by_method)) for path, by_method in by_path.items()
    ]


def _dispatch(by_method: dict[str, Operation], authorizer: Authorizer) -> Callable[[Request], Awaitable[Response]]:
    async def serve(request: Request) -> Response:
        # The server drops the body of a response to HEAD.
        method = "GET" if request.method == "HEAD" else request.method
        return await by_method[method].respond(request, authorizer)

    return serve


def _span_details(routes: Sequence[Route]) -> Callable[[Scope], tuple[str, dict[str, str]]]:
    """Name spans and metrics by route: names with ids in them would be unbounded."""

    def details(scope: Scope) -> tuple[str, dict[str, str]]:
        for route in routes:
            if route.matches(scope)[0] is not Match.NONE:
                return f"{scope['method']} {route.path}", {"http.route": route.path}
        return scope["method"], {}

    return details


async def _domain_error_response(_request: Request, error: Exception) -> Response:
    assert isinstance(error, DomainError)  # noqa: S101 - narrows what Starlette passes
    headers = {}
    if error.retry_after_seconds is not None:
        headers["retry-after"] = str(math.ceil(error.retry_after_seconds))
    if isinstance(error, AuthenticationRequired):
        headers["www-authenticate"] = "Bearer"
    return error_response(http_status(error), error.message, headers)


async def _http_error_response(_request: Request, error: Exception) -> Response:
    # Raised by Starlette: unknown path, wrong method.
    assert isinstance(error, HTTPException)  # noqa: S101 - narrows what Starlette passes
    return error_response(error.status_code, error.detail, error.headers)
