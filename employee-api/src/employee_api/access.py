import hashlib
import secrets
import uuid
from dataclasses import dataclass
from enum import Enum, StrEnum

from starlette.requests import Request

# The rank of each management role; all other roles have rank 0.
_RANKS = {"manager": 1, "cto": 2, "ceo": 3}
MANAGEMENT_ROLES = frozenset(_RANKS)

# Browsers accept a cookie with the prefix `__Host-` only if it has Secure and Path=/, and no Domain.
SESSION_COOKIE = "__Host-session"
DEVICE_COOKIE = "__Host-device"

# The prefix distinguishes API tokens from session tokens, and lets secret scanners find leaked API tokens.
API_TOKEN_PREFIX = "shop_"  # noqa: S105 - not a secret


def new_token() -> str:
    """Return a random 256-bit token. Unlike a password, it needs no slow hash: its SHA-256 hash is safe to store."""
    return secrets.token_urlsafe(32)


def hash_token(token: str) -> bytes:
    """Return the hash to store instead of the token. `token` may be any text that a client sends."""
    return hashlib.sha256(token.encode(errors="surrogateescape")).digest()


def bearer_token(request: Request) -> str | None:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None


def session_token(request: Request) -> str:
    return bearer_token(request) or request.cookies.get(SESSION_COOKIE, "")


class Scope(StrEnum):
    """A right that an API token can have. The role of the token's user may limit it further."""

    USERS_READ = "users:read"
    USERS_WRITE = "users:write"
    TASKS_READ = "tasks:read"
    TASKS_WRITE = "tasks:write"
    ACTIVITIES_READ = "activities:read"
    EXPORT_READ = "export:read"


class Access(Enum):
    """The rights that an operation requires of its caller if `AUTH_MODE` is `enforce`.

    - SELF: a session, in every mode, because the operation affects the caller's own account. API tokens are refused.
    - SESSION: a session or API token of an approved user. An API token must have the operation's scope.
    - MANAGEMENT: like SESSION, but the user must also have a management role.
    - SUBORDINATE: like MANAGEMENT, but the caller must also outrank the user in the path.
    """

    OPEN = "open"
    SELF = "self"
    SESSION = "session"
    MANAGEMENT = "management"
    SUBORDINATE = "subordinate"


def outranks(role: str, other: str) -> bool:
    """Return whether `role` may administer users with the role `other`. A `ceo` may administer every user."""
    return role == "ceo" or _RANKS.get(role, 0) > _RANKS.get(other, 0)


@dataclass(frozen=True)
class Actor:
    """The user who made the request, with their current role."""

    id: uuid.UUID
    role: str
    approved: bool = True
    scopes: frozenset[str] | None = None  # the API token's scopes; None if the request uses a session

    @property
    def manages(self) -> bool:
        return self.role in MANAGEMENT_ROLES
