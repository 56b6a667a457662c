from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from http import HTTPStatus

import structlog
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from employee_api import errors
from employee_api.database import is_away
from employee_api.http import openapi
from employee_api.http.authorization import Authorizer
from employee_api.http.compression import Compression
from employee_api.http.cross_site import CrossSitePolicy
from employee_api.http.docs.page import CONTENT_SECURITY_POLICY, at_address, page
from employee_api.http.idempotency import StoredResponses
from employee_api.http.operations import Operation
from employee_api.http.problems import error_response
from employee_api.settings import AuthMode

log = structlog.get_logger()


def create_application(
    operations: Sequence[Operation],
    authorizer: Authorizer,
    policy: CrossSitePolicy,
    stored: StoredResponses,
    *,
    checks_host: bool,
) -> Starlette:
    """Create the application that serves the operations, `/openapi.json` and `/docs`.

    While the database is unavailable, requests get DatabaseUnavailable, or the documented 500 if authorization is off.
    """
    reports_database_away = authorizer.mode is not AuthMode.OFF

    def describe() -> openapi.Json:
        documented = [policy.documented(operation) for operation in operations]
        common: list[errors.ApiError] = [errors.HostNotServed()] if checks_host else []
        common += [errors.DatabaseUnavailable()] if reports_database_away else []
        return openapi.describe(documented, authorizer.mode, common)

    async def respond(operation: Operation, request: Request) -> Response:
        policy.check(request.headers, operation, authorizer)
        try:
            return await operation.respond(request, authorizer, stored)
        except Exception as error:
            if not (reports_database_away and is_away(error)):
                raise
            log.warning("database unavailable", operation=operation.name, error_type=type(error).__name__)
            raise errors.DatabaseUnavailable from error

    routes = [*_description_routes(describe, authorizer.mode), *_operation_routes(operations, respond)]
    app = Starlette(
        routes=routes,
        middleware=[Middleware(Compression)],
        exception_handlers=dict.fromkeys((errors.ApiError, HTTPException, Exception), _error_response),
    )
    app.router.redirect_slashes = False  # treat a path with a trailing slash as unknown
    # CORS wraps Starlette's own error handling, so that pages on allowed origins can also read a 500 response.
    app.middleware_stack = policy.wrap(app.build_middleware_stack())
    return app


def _description_routes(describe: Callable[[], openapi.Json], mode: AuthMode) -> list[Route]:
    # Generate the document on the first request for it: this takes 40 ms, and most processes never serve it.
    document = cache(describe)
    rendered = cache(lambda: page(document(), mode))

    async def serve_document(_request: Request) -> Response:
        return JSONResponse(document())

    async def serve_page(request: Request) -> Response:
        html = at_address(rendered(), str(request.base_url).rstrip("/"))
        return HTMLResponse(html, headers={"content-security-policy": CONTENT_SECURITY_POLICY})

    root = Route("/", RedirectResponse("/docs"), methods=["GET"])
    return [Route("/openapi.json", serve_document), Route("/docs", serve_page), root]


def _operation_routes(
    operations: Sequence[Operation], respond: Callable[[Operation, Request], Awaitable[Response]]
) -> list[Route]:
    by_path: dict[str, dict[str, Operation]] = {}
    for operation in operations:
        by_path.setdefault(operation.path, {})[operation.method] = operation

    def route(path: str, by_method: dict[str, Operation]) -> Route:
        async def serve(request: Request) -> Response:
            # Answer HEAD like GET; the server drops the body.
            return await respond(by_method["GET" if request.method == "HEAD" else request.method], request)

        return Route(path, serve, methods=list(by_method))

    return [route(path, by_method) for path, by_method in by_path.items()]


async def _error_response(request: Request, error: Exception) -> Response:
    if isinstance(error, errors.ApiError):
        return error_response(request, error)
    if not isinstance(error, HTTPException):  # Starlette re-raises this error, and the chassis logs it
        return error_response(request, errors.UnexpectedError())
    if error.status_code != HTTPStatus.METHOD_NOT_ALLOWED:
        return error_response(request, errors.PathNotFound())
    methods = (error.headers or {})["Allow"].split(", ")
    response = error_response(request, errors.MethodNotAllowed())
    if request.method == "OPTIONS":
        response = Response(status_code=HTTPStatus.NO_CONTENT)
    response.headers["allow"] = ", ".join(sorted([*methods, "OPTIONS"]))
    return response
