"""Who may do what, and how much of it is applied: nothing, counting, or all."""

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from enum import Enum

import structlog
from opentelemetry.metrics import Meter
from starlette.requests import Request

from employee_api.activities import Actor
from employee_api.errors import AuthenticationRequired, LeadersOnly, TooManyFailedLogins
from employee_api.rules import LEADERS
from employee_api.sessions import SessionRepository
from employee_api.settings import AuthMode

log = structlog.get_logger()

# The prefix makes browsers insist on Secure, Path=/ and no Domain.
SESSION_COOKIE = "__Host-session"
_REMEMBERED_FAILURES = 10_000


_Key = tuple[str, bytes]


class Access(Enum):
    """What an operation asks of its caller."""

    OPEN = "open"
    SESSION = "session"
    LEADER = "leader"


class Policy:
    """Decides on each request, by its session and the mode."""

    def __init__(self, mode: AuthMode, sessions: SessionRepository, meter: Meter) -> None:
        self.mode = mode
        self._sessions = sessions
        self._refusals = meter.create_counter(
            "employee_api.auth.refusals", description="Requests that the policy refuses, or would if it were enforced"
        )

    @property
    def enforced(self) -> bool:
        """Whether refusals reach callers."""
        return self.mode is AuthMode.ENFORCE

    async def admit(self, request: Request, access: Access, operation: str) -> Actor | None:
        """Tell whose request it is; raises AuthenticationRequired or LeadersOnly when enforced."""
        if self.mode is AuthMode.OFF:
            return None
        token = token_of(request)
        actor = None if token is None else await self._sessions.actor(token)
        if access is not Access.OPEN and actor is None:
            self.refuse(AuthenticationRequired(), operation)
        elif access is Access.LEADER and actor is not None and actor.role not in LEADERS:
            self.refuse(LeadersOnly(), operation)
        return actor

    def refuse(self, error: AuthenticationRequired | LeadersOnly | TooManyFailedLogins, operation: str) -> None:
        """Count a refusal, and raise it when enforced."""
        if self.mode is AuthMode.OFF:
            return
        self._refusals.add(1, {"operation": operation, "reason": error.reason, "enforced": self.enforced})
        log.info("refused" if self.enforced else "would refuse", operation=operation, reason=error.reason)
        if self.enforced:
            raise error


def token_of(request: Request) -> str | None:
    """The session's token: as a bearer, or in the cookie."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    return request.cookies.get(SESSION_COOKIE)


class FailedLogins:
    """Counts failed logins by e-mail and by address, each in a window that begins with its first failure.

    Each replica counts for itself, and the oldest counts are forgotten when too many are kept: a limit on guessing,
    not a lock on accounts.
    """

    def __init__(self, *, per_email: int, per_address: int, window_seconds: float, time: Callable[[], float]) -> None:
        self._limits = {"email": per_email, "address": per_address}
        self._window_seconds = window_seconds
        self._time = time
        self._failures: OrderedDict[_Key, tuple[float, int]] = OrderedDict()

    def exceeded(self, email: str, address: str) -> TooManyFailedLogins | None:
        """The error to answer with when either has failed too often."""
        waits = [
            begun + self._window_seconds - self._time()
            for key in _keys(email, address)
            for begun, count in [self._failures.get(key, (0.0, 0))]
            if count >= self._limits[key[0]]
        ]
        longest = max(waits, default=0.0)
        return TooManyFailedLogins(longest) if longest > 0 else None

    def attempted(self, email: str, address: str) -> None:
        """Count a login as failed until it has succeeded, so that many at once can't slip through."""
        now = self._time()
        for key in _keys(email, address):
            begun, count = self._failures.pop(key, (now, 0))
            self._failures[key] = (begun, count + 1) if begun + self._window_seconds > now else (now, 1)
        while len(self._failures) > _REMEMBERED_FAILURES:
            self._failures.popitem(last=False)

    def succeeded(self, email: str, address: str) -> None:
        """Forget the failures for an e-mail whose owner has come, and that this attempt was counted as one."""
        by_email, by_address = _keys(email, address)
        self._failures.pop(by_email, None)
        begun, count = self._failures.get(by_address, (0.0, 0))
        if count > 0:
            self._failures[by_address] = (begun, count - 1)


def _keys(email: str, address: str) -> tuple[_Key, _Key]:
    # An e-mail that nobody has may be as long as a request: what is remembered of it is not.
    return ("email", hashlib.sha256(email.encode()).digest()), ("address", address.encode())
