"""Which passwords users may choose."""

import asyncio

from employee_api.breached_passwords import BreachedPasswords
from employee_api.fields import MAX_PASSWORD_LENGTH
from employee_api.users.errors import WeakPassword
from employee_api.users.rules import normalize_password


class PasswordPolicy:
    """Passwords have a minimum length, and may not be known from a data breach.

    Args:
        min_length: in characters of the form that is hashed.
        breached: known passwords, if there is a list.
    """

    def __init__(self, min_length: int, breached: BreachedPasswords | None = None) -> None:
        self._min_length = min_length
        self._breached = breached

    async def check(self, password: str, field: str) -> None:
        """Raise WeakPassword, which names the field, if users may not choose the password."""
        normalized = normalize_password(password)
        if len(normalized) < self._min_length:
            raise WeakPassword(f"must have at least {self._min_length} characters", field)
        if len(normalized) > MAX_PASSWORD_LENGTH:  # normalization can lengthen it
            raise WeakPassword(f"must have at most {MAX_PASSWORD_LENGTH} characters", field)
        if self._breached is not None and await asyncio.to_thread(self._breached.contains, normalized):
            raise WeakPassword("is known from a data breach", field)
