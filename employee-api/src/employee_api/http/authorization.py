import uuid
from collections.abc import Awaitable, Callable

import structlog
from starlette.requests import Request

from chassis.telemetry import semconv
from chassis.telemetry.instruments import Telemetry
from employee_api import errors
from employee_api.access import Access, Actor, Scope, outranks
from employee_api.settings import AuthMode

log = structlog.get_logger()


class Authorizer:
    """Authorizes requests by the caller's role, and by the scopes of the caller's API token if there is one.

    A request without the required rights is allowed in mode OFF, counted but allowed in mode OBSERVE, and counted and
    refused in mode ENFORCE. Operations with Access.SELF require a session in every mode.
    """

    def __init__(
        self,
        mode: AuthMode,
        find_actor: Callable[[Request], Awaitable[Actor | None]],
        find_role: Callable[[str], Awaitable[str | None]],
        telemetry: Telemetry,
    ) -> None:
        self.mode = mode
        self.enforced = mode is AuthMode.ENFORCE
        self._find_actor = find_actor
        self._find_role = find_role
        self._refusals = telemetry.counter(semconv.EMPLOYEE_API_REFUSALS)

    async def authorize(self, request: Request, operation: str, access: Access, scope: Scope | None) -> Actor | None:
        """Return the user identified by the session or API token, if any. Raise an error to refuse the request."""
        actor = None if self.mode is AuthMode.OFF else await self._find_actor(request)
        if actor is not None:
            add_log_fields(actor.id)
        error = _refusal(actor, access, scope)
        if error is not None:
            self.refuse(error, operation)
            if access is Access.SELF:
                raise error
        if access is Access.SUBORDINATE and actor is not None:
            self.require_higher(actor, await self._find_role(request.path_params["id"]), operation)
        return actor

    def require_higher(self, actor: Actor | None, role: str | None, operation: str) -> None:
        """Refuse the request unless the actor outranks the role. Allow it if there is no actor or the role is None."""
        if actor is not None and role is not None and not outranks(actor.role, role):
            self.refuse(errors.HigherRoleRequired(), operation)

    def refuse(self, error: errors.ApiError, operation: str) -> None:
        """Count and log the refusal unless authorization is off. Raise the error if authorization is enforced."""
        if self.mode is AuthMode.OFF:
            return
        labels = {semconv.REFUSAL_REASON: error.reason, semconv.REFUSED_OPERATION: operation}
        self._refusals.add(1, (*labels.items(), (semconv.REFUSAL_ENFORCED, self.enforced)))
        log.info("refused" if self.enforced else "would refuse", operation=operation, reason=error.reason)
        if self.enforced:
            raise error


def add_log_fields(user_id: uuid.UUID) -> None:
    """Add the user's id to all later log lines for this request."""
    structlog.contextvars.bind_contextvars(**{semconv.USER_ID: str(user_id)})


def _refusal(actor: Actor | None, access: Access, scope: Scope | None) -> errors.ApiError | None:
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
    return None if access is Access.SESSION or actor.manages else errors.ManagementRoleRequired()
