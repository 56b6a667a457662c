"""Authorizes requests by their session or API token, as far as `AUTH_MODE` says."""

import uuid

import structlog
from starlette.requests import Request
from typing_extensions import override

from chassis.telemetry import logging, semconv
from chassis.telemetry.instruments import Telemetry
from employee_api import errors
from employee_api.access import API_TOKEN_PREFIX, SESSION_COOKIE, Access, Actor
from employee_api.auth.api_tokens import ApiTokenRepository
from employee_api.auth.sessions import SessionRepository
from employee_api.http.operations import Authorizer, Operation
from employee_api.settings import AuthMode

log = structlog.get_logger()


class SessionAuthorizer(Authorizer):
    """Authorizes by session or API token, and by role.

    Depending on the mode it does nothing, only counts refusals, or refuses; SELF is refused in every mode.
    """

    def __init__(
        self, mode: AuthMode, sessions: SessionRepository, api_tokens: ApiTokenRepository, telemetry: Telemetry
    ) -> None:
        self.mode = mode
        self._sessions = sessions
        self._api_tokens = api_tokens
        self._refusals = telemetry.counter(semconv.EMPLOYEE_API_REFUSALS)

    @property
    @override
    def enforced(self) -> bool:
        return self.mode is AuthMode.ENFORCE

    @override
    async def authorize(self, request: Request, operation: Operation) -> Actor | None:
        actor = None if self.mode is AuthMode.OFF else await self._find_actor(request)
        if actor is not None:
            add_log_fields(actor.id)
        error = _refusal(actor, operation)
        if error is not None:
            self.refuse(error, operation.name)
            if operation.access is Access.SELF:
                raise error
        return actor

    async def _find_actor(self, request: Request) -> Actor | None:
        bearer = bearer_token(request)
        if bearer is not None and bearer.startswith(API_TOKEN_PREFIX):
            return await self._api_tokens.find_actor(bearer)
        token = session_token(request)
        return None if token is None else await self._sessions.find_actor(token)

    @override
    def refuse(self, error: errors.ApiError, operation: str) -> None:
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


def _refusal(actor: Actor | None, operation: Operation) -> errors.ApiError | None:
    """Return why the actor may not run the operation."""
    access, scope = operation.access, operation.scope
    if access is Access.OPEN:
        return None
    if actor is None:
        return errors.AuthenticationRequired()
    if access is Access.SELF:
        return None if actor.scopes is None else errors.SessionRequired()
    if scope is not None and actor.scopes is not None and scope not in actor.scopes:
        return errors.ScopeRequired(scope)
    if not actor.approved:
        return errors.ApprovalRequired()
    return errors.ManagementRoleRequired() if access is Access.MANAGEMENT and not actor.manages else None


def session_token(request: Request) -> str | None:
    """Return the session token: a bearer token, or else the cookie."""
    return bearer_token(request) or request.cookies.get(SESSION_COOKIE)


def bearer_token(request: Request) -> str | None:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None
