"""Decides which origins' web pages may use the API. `chassis.http.checks` checks the request's host."""

from dataclasses import dataclass, replace

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import ASGIApp
from typing_extensions import override

from chassis.values.hosts import is_foreign
from employee_api.errors import CrossSiteRequest, JsonRequired, PreflightRefused
from employee_api.http.authorization import Authorizer
from employee_api.http.inputs import JsonBody
from employee_api.http.operations import Operation
from employee_api.http.problems import error_response

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_CORS_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
_REQUEST_HEADERS = ["Authorization", "Content-Type", "If-Match", "If-None-Match", "Idempotency-Key", "X-Request-ID"]
_RESPONSE_HEADERS = (
    "Content-Disposition",
    "ETag",
    "Idempotency-Replayed",
    "Location",
    "Retry-After",
    "WWW-Authenticate",
    "X-Request-ID",
)


@dataclass(frozen=True)
class CrossSitePolicy:
    """Refuses changes requested by pages on other origins, based on headers that browsers add."""

    allowed_origins: frozenset[str] = frozenset()
    refused_unenforced: bool = False  # whether to refuse cross-site changes even if authorization is not enforced

    def wrap(self, app: ASGIApp) -> ASGIApp:
        """Add CORS headers to the application's responses if other origins are allowed."""
        if not self.allowed_origins:
            return app
        return _Cors(
            app,
            allow_origins=self.allowed_origins,
            allow_methods=_CORS_METHODS,
            allow_headers=_REQUEST_HEADERS,
            allow_credentials=True,
            expose_headers=_RESPONSE_HEADERS,
        )

    def check(self, headers: Headers, operation: Operation, authorizer: Authorizer) -> None:
        """Refuse a change that a page on another origin may have requested (cross-site request forgery)."""
        if operation.method in _SAFE_METHODS:
            return
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        if origin not in self.allowed_origins and is_foreign(origin, site, headers.get("host", "")):
            authorizer.refuse(CrossSiteRequest(), operation.name)
            if self.refused_unenforced:
                raise CrossSiteRequest
        # Require JSON: browsers send forms and plain text to other origins, but JSON only after a preflight request.
        if isinstance(operation.input, JsonBody) and _has_body(headers) and not _is_json(headers):
            authorizer.refuse(JsonRequired(), operation.name)

    def documented(self, operation: Operation) -> Operation:
        """Return a copy of the operation that also lists the errors that `check` can raise."""
        if operation.method in _SAFE_METHODS:
            return operation
        failures, enforced = operation.failures, operation.enforced_failures
        if self.refused_unenforced:
            failures += (CrossSiteRequest(),)
        else:
            enforced += (CrossSiteRequest(),)
        if isinstance(operation.input, JsonBody):
            enforced += (JsonRequired(),)
        return replace(operation, failures=failures, enforced_failures=enforced)


class _Cors(CORSMiddleware):
    """CORS middleware whose errors have the same format as all other API errors."""

    @override
    def preflight_response(self, request_headers: Headers) -> Response:
        response = super().preflight_response(request_headers)
        if response.status_code < 400:  # noqa: PLR2004 - the lowest error status
            return response
        connection = HTTPConnection({"type": "http", "headers": request_headers.raw})
        refused = error_response(connection, PreflightRefused(bytes(response.body).decode()))
        refused.headers["vary"] += f", {response.headers['vary']}"
        return refused


def _has_body(headers: Headers) -> bool:
    return "transfer-encoding" in headers or headers.get("content-length", "0").strip("0") != ""


def _is_json(headers: Headers) -> bool:
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    return media_type == "application/json" or (media_type.startswith("application/") and media_type.endswith("+json"))
