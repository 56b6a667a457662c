"""Prepares new users by the same rules for the API and for the command line."""

from employee_api.users.password_policy import PasswordPolicy
from employee_api.users.passwords import PasswordHasher
from employee_api.users.repository import NewUser
from employee_api.users.rules import DEFAULT_ROLE
from employee_api.users.schemas import UserInput


class NewUserPreparer:
    def __init__(self, password_hasher: PasswordHasher, policy: PasswordPolicy) -> None:
        self._password_hasher = password_hasher
        self._policy = policy

    async def prepare(self, new: UserInput) -> NewUser:
        """Return the user to store. Raises WeakPassword, TooManyPasswords."""
        password_hash = await self.hash(new.password)
        return NewUser(new.name, new.email, password_hash, new.role or DEFAULT_ROLE, new.dept or "")

    async def hash(self, password: str, field: str = "password") -> str:
        """Hash a password that a user has chosen in this field. Raises WeakPassword, TooManyPasswords."""
        await self._policy.check(password, field)
        return await self._password_hasher.hash(password)
