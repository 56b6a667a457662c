"""Registration: open, by invitation, or closed; and what becomes of the password that a new user has chosen."""

import asyncio
from dataclasses import dataclass, replace

from employee_api import errors
from employee_api.access import Actor
from employee_api.breached_passwords import BreachedPasswords
from employee_api.database import Repository, transaction
from employee_api.failure_counts import FailureCounts, count_key, network
from employee_api.fields import MAX_PASSWORD_LENGTH
from employee_api.http.operations import Authorizer
from employee_api.settings import AuthMode, RegistrationMode
from employee_api.users.links import LinkPurpose, is_usable, use_link
from employee_api.users.locks import is_managed
from employee_api.users.passwords import PasswordHasher
from employee_api.users.repository import NewUser, UserRepository
from employee_api.users.rules import DEFAULT_ROLE, normalize_password
from employee_api.users.schemas import UserInput, UserOutput


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
            raise errors.WeakPassword(f"must have at least {self.min_length} characters", field)
        if len(normalized) > MAX_PASSWORD_LENGTH:  # normalization can lengthen it
            raise errors.WeakPassword(f"must have at most {MAX_PASSWORD_LENGTH} characters", field)
        if self.breached is not None and await asyncio.to_thread(self.breached.contains, normalized):
            raise errors.WeakPassword("is known from a data breach", field)
        return await self.password_hasher.hash(password)


@dataclass
class Registration(Repository):
    """Decides who may register, and with which rights.

    With enforced authorization users who register without an invitation are employees who wait for approval, and only
    management users can invite.

    Attributes:
        mode: None is the default: everyone may register, but with enforced authorization no one once there is a
            management user, who can add the others.
        per_address: how many may come from one address in a window: each costs a password hash, and leaves a user.
    """

    users: UserRepository
    authorizer: Authorizer
    mode: RegistrationMode | None
    counts: FailureCounts
    per_address: int

    async def check(self, invitation: str | None) -> None:
        """Refuse a registration before its password is hashed.

        Raises RegistrationClosed, InvitationRequired, InvalidInvitation.
        """
        await self.check_open("register")
        if invitation is None:
            if self.mode is RegistrationMode.INVITE:
                raise errors.InvitationRequired
            return
        async with self._reads.connect() as connection:
            if not await is_usable(connection, LinkPurpose.INVITATION, invitation, self.clock()):
                raise errors.InvalidInvitation

    async def check_open(self, operation: str) -> None:
        """Raise RegistrationClosed if no one may register, not even with an invitation."""
        if self.mode is RegistrationMode.CLOSED:
            raise errors.RegistrationClosed
        if self.mode is None:
            async with self._reads.connect() as connection:
                managed = await is_managed(connection)
            if managed:
                self.authorizer.refuse(errors.RegistrationClosed(), operation)

    async def count(self, address: str) -> None:
        """Count an attempt, successful or not. Raises TooManyRegistrations if authorization is enforced."""
        if self.authorizer.mode is AuthMode.OFF:
            return
        key = count_key("registration", network(address))
        count = (await self.counts.read([key])).get(key)
        if count is None or count.failures < self.per_address:
            # Concurrent attempts get distinct counts.
            count = await self.counts.add_apart(key)
            if count.failures <= self.per_address:
                return
        wait = count.begun_at + self.counts.window - self.clock()
        self.authorizer.refuse(errors.TooManyRegistrations(retry_after_seconds=wait.total_seconds()), "register")

    async def register(self, new: NewUser, invitation: str | None, actor: Actor | None) -> UserOutput:
        """Create a user with the role of the invitation, or with what they may have without one.

        Raises EmailTaken, InvalidInvitation.
        """
        enforced = self.authorizer.enforced
        if invitation is None:
            return await self.users.add(replace(new, role=DEFAULT_ROLE, approved=False) if enforced else new, actor)
        async with transaction(self.engine) as connection:
            link = await use_link(
                connection, LinkPurpose.INVITATION, invitation, self.clock(), require_manager=enforced
            )
            if link is None:
                raise errors.InvalidInvitation
            invited = replace(new, role=link.role, dept=link.dept or new.dept)
            return await self.users.add_within(connection, invited, actor, invitation_id=link.id)
