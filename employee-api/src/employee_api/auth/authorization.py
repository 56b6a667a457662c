"""Authorizes requests by their session, as far as `AUTH_MODE` says."""

import uuid

import structlog
from starlette.requests import Request
from typing_extensions import override

from chassis import logging, semconv
from chassis.errors import DomainError
from chassis.telemetry import Telemetry
from employee_api.access import SESSION_COOKIE, Access, Actor
from employee_api.auth.sessions import SessionRepository
from employee_api.errors import ApprovalRequired, AuthenticationRequired, ManagementRoleRequired
from employee_api.http.operations import Authorizer
from employee_api.settings import AuthMode

log = structlog.get_logger()

_NEEDS_APPROVAL = frozenset({Access.SESSION, Access.MANAGEMENT})


class SessionAuthorizer(Authorizer):
    """Authorizes by session and role: not at all, counting refusals only, or refusing, depending on the mode."""

    def __init__(self, mode: AuthMode, sessions: SessionRepository, telemetry: Telemetry) -> None:
        self.mode = mode
        self._sessions = sessions
        self._refusals = telemetry.counter(semconv.EMPLOYEE_API_REFUSALS)

    @property
    @override
    def enforced(self) -> bool:
        return self.mode is AuthMode.ENFORCE

    @override
    async def authorize(self, request: Request, access: Access, operation: str) -> Actor | None:
        token = None if self.mode is AuthMode.OFF else session_token(request)
        actor = None if token is None else await self._sessions.find_actor(token)
        if actor is not None:
            add_log_fields(actor.id)
        if access is not Access.OPEN and actor is None:
            self.refuse(AuthenticationRequired(), operation)
        elif access in _NEEDS_APPROVAL and actor is not None and not actor.approved:
            self.refuse(ApprovalRequired(), operation)
        elif access is Access.MANAGEMENT and actor is not None and not actor.manages:
            self.refuse(ManagementRoleRequired(), operation)
        if access is Access.SELF and actor is None:
            raise AuthenticationRequired
        return actor

    @override
    def refuse(self, error: DomainError, operation: str) -> None:
        if self.mode is AuthMode.OFF:
            return
        self._refusals.add(
            1,
            (
                (semconv.REFUSAL_REASON, error.reason),
                (semconv.REFUSED_OPERATION, operation),
                (semconv.REFUSAL_ENFORCED, self.enforced),
            ),
        )
        log.info("refused" if self.enforced else "would refuse", operation=operation, reason=error.reason)
        if self.enforced:
            raise error


def add_log_fields(user_id: uuid.UUID) -> None:
    """Add the user to all further log lines of the request."""
    logging.request_fields.set({**logging.request_fields.get(), semconv.USER_ID: str(user_id)})


def session_token(request: Request) -> str | None:
    """Return the session token: a bearer token, or else the cookie."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    return request.cookies.get(SESSION_COOKIE)
