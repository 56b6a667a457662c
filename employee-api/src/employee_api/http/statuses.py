"""The one table that maps errors to HTTP statuses."""

from collections.abc import Mapping
from http import HTTPStatus

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
from employee_api.errors import Forbidden, PreconditionFailed, Unauthenticated
from employee_api.http.errors import HostNotServed, IdempotencyKeyReused, JsonRequired, MethodNotAllowed

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
