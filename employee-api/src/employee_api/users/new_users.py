"""Prepares new users by the same rules for the API and for the command line."""

import asyncio
from dataclasses import dataclass

from employee_api.breached_passwords import BreachedPasswords
from employee_api.errors import WeakPassword
from employee_api.fields import MAX_PASSWORD_LENGTH
from employee_api.users.passwords import PasswordHasher
from employee_api.users.repository import NewUser
from employee_api.users.rules import DEFAULT_ROLE, normalize_password
from employee_api.users.schemas import UserInput


@dataclass
class NewUserPreparer:
    """Checks and hashes passwords that users choose; `breached` ones are refused, if there is a list."""

    password_hasher: PasswordHasher
    min_length: int
    breached: BreachedPasswords | None = None

    async def prepare(self, new: UserInput) -> NewUser:
        """Return the user to store. Raises WeakPassword, TooManyPasswords."""
        password_hash = await self.hash(new.password)
        return NewUser(new.name, new.email, password_hash, new.role or DEFAULT_ROLE, new.dept or "")

    async def hash(self, password: str, field: str = "password") -> str:
        """Hash a password that a user has chosen in this field. Raises WeakPassword, TooManyPasswords."""
        normalized = normalize_password(password)
        if len(normalized) < self.min_length:
            raise WeakPassword(f"must have at least {self.min_length} characters", field)
        if len(normalized) > MAX_PASSWORD_LENGTH:  # normalization can lengthen it
            raise WeakPassword(f"must have at most {MAX_PASSWORD_LENGTH} characters", field)
        if self.breached is not None and await asyncio.to_thread(self.breached.contains, normalized):
            raise WeakPassword("is known from a data breach", field)
        return await self.password_hasher.hash(password)
