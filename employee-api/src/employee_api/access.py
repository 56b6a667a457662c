"""Who makes a request, and what an operation requires of them."""

import uuid
from dataclasses import dataclass
from enum import Enum

MANAGEMENT_ROLES = frozenset({"ceo", "cto", "manager"})

# The prefixes make browsers insist on Secure, Path=/ and no Domain.
SESSION_COOKIE = "__Host-session"
DEVICE_COOKIE = "__Host-device"


class Access(Enum):
    """What an operation requires of its caller when `AUTH_MODE` is `enforce`.

    SELF is for what concerns only the caller: it requires a session in every mode, because without one it has no
    subject. SESSION requires also that a management role has approved its user.
    """

    OPEN = "open"
    SELF = "self"
    SESSION = "session"
    MANAGEMENT = "management"


@dataclass(frozen=True)
class Actor:
    """The user whose session a request carries, with their current role."""

    id: uuid.UUID
    role: str
    approved: bool = True

    @property
    def manages(self) -> bool:
        """Whether the user has a management role."""
        return self.role in MANAGEMENT_ROLES


@dataclass(frozen=True)
class Caller:
    """Where a request comes from: the client's address, and what it says of its program, cut to a sane length."""

    address: str
    user_agent: str
