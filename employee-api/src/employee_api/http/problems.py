"""Renders an error as `{"error": …}`, or as a problem document (RFC 9457) if the `Accept` header prefers one."""

import math

from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, Response

from chassis.http.negotiation import accepted_qualities
from employee_api import errors
from employee_api.schemas import Error, InvalidField, Problem

JSON = "application/json"
PROBLEM_JSON = "application/problem+json"


def error_response(request: HTTPConnection, error: errors.ApiError) -> Response:
    status = int(error.status)
    headers = {"vary": "Accept"}
    if error.retry_after_seconds is not None:
        headers["retry-after"] = str(math.ceil(error.retry_after_seconds))
    if isinstance(error, errors.AuthenticationRequired):
        headers["www-authenticate"] = "Bearer"
    if _prefers_problems(request):
        return JSONResponse(problem(error).model_dump(), status, headers, PROBLEM_JSON)
    return JSONResponse(Error(error=error.message).model_dump(), status, headers)


def problem(error: errors.ApiError) -> Problem:
    return Problem(
        type=f"/docs#{error_anchor(error.reason)}",
        title=error.reason.replace("_", " ").capitalize(),
        status=int(error.status),
        detail=error.message,
        code=error.reason,
        errors=[InvalidField(field=violation.field, detail=violation.rule) for violation in error.violations],
    )


def error_anchor(reason: str) -> str:
    """Return the HTML id of the section in `/docs` that explains this error reason."""
    return f"error-{reason.lower().replace('_', '-')}"


def _prefers_problems(request: HTTPConnection) -> bool:
    # Almost every client accepts `*/*`, so send the problem format only to clients that name it.
    qualities = accepted_qualities(request.headers.getlist("accept"))
    wanted = qualities.get(PROBLEM_JSON, 0.0)
    plain = next((qualities[name] for name in (JSON, "application/*", "*/*") if name in qualities), 0.0)
    return wanted > 0 and wanted >= plain
