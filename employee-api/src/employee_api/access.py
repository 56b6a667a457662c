"""Who makes a request, with which token, and what an operation requires of them."""

import hashlib
import secrets
import uuid
from dataclasses import dataclass
from enum import Enum, StrEnum

from starlette.requests import Request

# The management roles by rank; all other roles are below them.
_RANKS = {"manager": 1, "cto": 2, "ceo": 3}
MANAGEMENT_ROLES = frozenset(_RANKS)

# The prefixes make browsers insist on Secure, Path=/ and no Domain.
SESSION_COOKIE = "__Host-session"
DEVICE_COOKIE = "__Host-device"

# Lets programs, and scanners for leaked secrets, recognize an API token.
API_TOKEN_PREFIX = "shop_"  # noqa: S105 - no secret


def new_token() -> str:
    """Return 256 random bits: unlike a password, they can't be guessed from a fast hash."""
    return secrets.token_urlsafe(32)


def hash_token(token: str) -> bytes:
    """Return what is stored of a token, or of any text that a client sends as one."""
    return hashlib.sha256(token.encode(errors="surrogateescape")).digest()


def bearer_token(request: Request) -> str | None:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None


def session_token(request: Request) -> str:
    """Return the token of the session: a bearer token, or else the cookie; empty if there is neither."""
    return bearer_token(request) or request.cookies.get(SESSION_COOKIE, "")


class Scope(StrEnum):
    """What an API token may do at most: its user's role limits it further."""

    USERS_READ = "users:read"
    USERS_WRITE = "users:write"
    TASKS_READ = "tasks:read"
    TASKS_WRITE = "tasks:write"
    ACTIVITIES_READ = "activities:read"
    EXPORT_READ = "export:read"


class Access(Enum):
    """What an operation requires of its caller when `AUTH_MODE` is `enforce`.

    SELF is for what concerns only the caller: it requires a session in every mode, because without one there is no
    caller. SESSION also requires that a management role has approved the user. An API token replaces a session, within
    its scopes, except for SELF. SUBORDINATE is MANAGEMENT of the user in the path, whom the caller must outrank.
    """

    OPEN = "open"
    SELF = "self"
    SESSION = "session"
    MANAGEMENT = "management"
    SUBORDINATE = "subordinate"


def outranks(role: str, other: str) -> bool:
    """Return whether a role may administer users with the other: only lower ones, but a CEO everyone."""
    return role == "ceo" or _RANKS.get(role, 0) > _RANKS.get(other, 0)


@dataclass(frozen=True)
class Actor:
    """The user whose session or API token a request carries, with their current role.

    `scopes` are those of the API token; None for a session.
    """

    id: uuid.UUID
    role: str
    approved: bool = True
    scopes: frozenset[str] | None = None

    @property
    def manages(self) -> bool:
        return self.role in MANAGEMENT_ROLES
