"""Responses to errors: `{"error": …}`, or a problem document (RFC 9457) for clients whose `Accept` prefers one."""

import math
import re
from collections.abc import Iterable, Mapping
from http import HTTPStatus

from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, Response

from chassis.errors import (
    AlreadyExists,
    DomainError,
    FailedPrecondition,
    Internal,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
    Unavailable,
)
from employee_api.errors import AuthenticationRequired, Forbidden, PreconditionFailed, Unauthenticated
from employee_api.http.errors import HostNotServed, IdempotencyKeyReused, JsonRequired, MethodNotAllowed
from employee_api.schemas import Error, InvalidField, Problem

JSON = "application/json"
PROBLEM_JSON = "application/problem+json"
_QUALITY = re.compile(r"\s*q\s*=\s*(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)\s*", re.IGNORECASE)

# The one table that maps errors to HTTP statuses.
HTTP_STATUSES: Mapping[type[DomainError], HTTPStatus] = {
    InvalidArgument: HTTPStatus.BAD_REQUEST,
    Unauthenticated: HTTPStatus.UNAUTHORIZED,
    Forbidden: HTTPStatus.FORBIDDEN,
    HostNotServed: HTTPStatus.MISDIRECTED_REQUEST,
    JsonRequired: HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    NotFound: HTTPStatus.NOT_FOUND,
    AlreadyExists: HTTPStatus.CONFLICT,
    FailedPrecondition: HTTPStatus.CONFLICT,
    MethodNotAllowed: HTTPStatus.METHOD_NOT_ALLOWED,
    PreconditionFailed: HTTPStatus.PRECONDITION_FAILED,
    IdempotencyKeyReused: HTTPStatus.UNPROCESSABLE_ENTITY,
    ResourceExhausted: HTTPStatus.TOO_MANY_REQUESTS,
    Unavailable: HTTPStatus.SERVICE_UNAVAILABLE,
    Internal: HTTPStatus.INTERNAL_SERVER_ERROR,
}


def http_status(error: DomainError) -> HTTPStatus:
    """Return the status of the error's nearest class in HTTP_STATUSES."""
    return next(HTTP_STATUSES[kind] for kind in type(error).__mro__ if kind in HTTP_STATUSES)


def error_response(request: HTTPConnection, error: DomainError) -> Response:
    """Return the response to an error, in the format that the client prefers."""
    status = int(http_status(error))
    headers = {"vary": "Accept"}
    if error.retry_after_seconds is not None:
        headers["retry-after"] = str(math.ceil(error.retry_after_seconds))
    if isinstance(error, AuthenticationRequired):
        headers["www-authenticate"] = "Bearer"
    if _prefers_problems(request):
        return JSONResponse(problem(error).model_dump(), status, headers, PROBLEM_JSON)
    return JSONResponse(Error(error=error.message).model_dump(), status, headers)


def problem(error: DomainError) -> Problem:
    violations = error.violations if isinstance(error, InvalidArgument) else ()
    return Problem(
        type=f"/docs#{error_anchor(error.reason)}",
        title=error.reason.replace("_", " ").capitalize(),
        status=int(http_status(error)),
        detail=error.message,
        code=error.reason,
        errors=[InvalidField(field=violation.field, detail=violation.rule) for violation in violations],
    )


def error_anchor(reason: str) -> str:
    """Return the id of the section of `/docs` that explains the errors with this reason."""
    return f"error-{reason.lower().replace('_', '-')}"


def _prefers_problems(request: HTTPConnection) -> bool:
    # Only a client that names the format expects it: `*/*` is what every client sends.
    qualities = accepted_qualities(request.headers.getlist("accept"))
    wanted = qualities.get(PROBLEM_JSON, 0.0)
    plain = next((qualities[name] for name in (JSON, "application/*", "*/*") if name in qualities), 0.0)
    return wanted > 0 and wanted >= plain


def accepted_qualities(lines: Iterable[str]) -> dict[str, float]:
    """Return the quality of each value that an `Accept` or `Accept-Encoding` lists (RFC 9110, section 12.4.2).

    Values are in lower case; a malformed quality counts as 0.
    """
    qualities: dict[str, float] = {}
    for element in ",".join(lines).split(","):
        value, *parameters = element.split(";")
        if name := value.strip().lower():
            qualities[name] = max(qualities.get(name, 0.0), _quality(parameters))
    return qualities


def _quality(parameters: Iterable[str]) -> float:
    for parameter in parameters:
        if parameter.strip().lower().startswith("q"):
            match = _QUALITY.fullmatch(parameter)
            return float(match[1]) if match else 0.0
    return 1.0
