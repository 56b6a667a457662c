"""Who makes a request, and what an operation requires of them."""

import uuid
from dataclasses import dataclass
from enum import Enum

MANAGEMENT_ROLES = frozenset({"ceo", "cto", "manager"})

# The prefix makes browsers insist on Secure, Path=/ and no Domain.
SESSION_COOKIE = "__Host-session"


class Access(Enum):
    """What an operation requires of its caller when `AUTH_MODE` is `enforce`."""

    OPEN = "open"
    SESSION = "session"
    MANAGEMENT = "management"


@dataclass(frozen=True)
class Actor:
    """The user whose session a request carries, with their current role."""

    id: uuid.UUID
    role: str
