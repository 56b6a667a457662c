"""Responses to errors: `{"error": …}`, or a problem document (RFC 9457) for clients whose `Accept` prefers one."""

import math

from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, Response

from chassis.errors import DomainError, InvalidArgument
from employee_api.errors import AuthenticationRequired
from employee_api.http.negotiation import accepted_qualities
from employee_api.http.outputs import JSON
from employee_api.http.statuses import http_status
from employee_api.schemas import Error, InvalidField, Problem

PROBLEM_JSON = "application/problem+json"


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
