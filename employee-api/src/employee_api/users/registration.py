import asyncio
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import delete, select
from sqlmodel import col
from starlette.requests import Request
from typing_extensions import override

from chassis.errors import FieldViolation
from chassis.values.networks import network
from employee_api import errors
from employee_api.access import Access
from employee_api.activities import Subject, record
from employee_api.breached_passwords import is_breached
from employee_api.database import Repository, shared_transaction, transaction
from employee_api.failure_counts import FailureCounts, count_key
from employee_api.fields import MAX_PASSWORD_LENGTH, email_key, normalize_password
from employee_api.http.authorization import Authorizer
from employee_api.http.inputs import NOT_ALLOWED, JsonBody
from employee_api.http.operations import Call, operation
from employee_api.models import SingleUseLink, User
from employee_api.schemas import Deleted
from employee_api.settings import AuthMode, RegistrationMode
from employee_api.users.links import LinkPurpose, create_link, is_usable, use_link
from employee_api.users.passwords import PasswordHasher
from employee_api.users.repository import CAN_MANAGE, add_user, lock_actor
from employee_api.users.schemas import (
    DEFAULT_ROLE,
    CreatedInvitation,
    InvitationInput,
    InvitationOutput,
    RegistrationInput,
    UserOutput,
)

_INVITATIONS = col(SingleUseLink.purpose) == LinkPurpose.INVITATION


@dataclass(frozen=True)
class NewUserBody(JsonBody):
    """Data for a new user. With `strict`, errors also name fields that are too long, and a blank e-mail is refused."""

    error_text: str | None = "Name, email and password required"
    ignores_query: bool = True
    strict: bool = False

    @override
    async def read(self, request: Request, *, strict: bool = False) -> Any:
        return await super(NewUserBody, replace(self, strict=strict)).read(request)

    @override
    def is_named(self, violation: FieldViolation) -> bool:
        return violation.rule.startswith((NOT_ALLOWED, "is too long") if self.strict else NOT_ALLOWED)

    @override
    def validate(self, value: object) -> Any:
        new = super().validate(value)
        if self.strict and not email_key(new.email):
            raise self.error([FieldViolation("email", "must not be empty")])
        return new


@dataclass
class NewUserPreparer:
    """Checks and hashes the passwords that users choose. Passwords in the file `breached` are refused."""

    password_hasher: PasswordHasher
    min_length: int
    breached: Path | None = None

    async def hash(self, password: str, field: str = "password") -> str:
        """Hash a user's new password. If it breaks a rule, raise WeakPassword, which names the request's `field`."""
        normalized = normalize_password(password)
        if len(normalized) < self.min_length:
            raise errors.WeakPassword(f"must have at least {self.min_length} characters", field)
        if len(normalized) > MAX_PASSWORD_LENGTH:  # normalization may have lengthened the password
            raise errors.WeakPassword(f"must have at most {MAX_PASSWORD_LENGTH} characters", field)
        if self.breached is not None and await asyncio.to_thread(is_breached, normalized, self.breached):
            raise errors.WeakPassword("is known from a data breach", field)
        return await self.password_hasher.hash(password)


@dataclass
class RegistrationHandlers(Repository):
    """Decides who may register, and with which rights.

    If authorization is enforced, users who register without an invitation become employees who await approval, and only
    management users can invite.

    Attributes:
        mode: who may register. None means anyone, unless authorization is enforced and some user can manage others.
        per_address: the maximum number of attempts per window, counted by invitation or, without one, by network.
    """

    new_users: NewUserPreparer
    authorizer: Authorizer
    counts: FailureCounts
    mode: RegistrationMode | None
    per_address: int

    @operation(
        "POST", "/api/auth/register", "Register as an employee", reads=NewUserBody, creates=True, repeatable=True,
        failures=(
            errors.WeakPassword(), errors.RegistrationClosed(), errors.InvitationRequired(),
            errors.InvalidInvitation(), errors.EmailTaken(), errors.TooManyPasswords(),
        ),
        enforced_failures=(errors.TooManyRegistrations(),),
    )  # fmt: skip
    async def register(self, call: Call[RegistrationInput]) -> UserOutput:
        """Create a user. An invitation sets their role; without an invitation, they may have to await approval."""
        invitation = call.input.invite or None
        await self._check_open("register")
        # Refuse invalid registrations early, because hashing their passwords would be expensive.
        if invitation is None and self.mode is RegistrationMode.INVITE:
            raise errors.InvitationRequired
        if invitation is not None and not await is_usable(self, LinkPurpose.INVITATION, invitation):
            raise errors.InvalidInvitation
        source = ("invitation", invitation) if invitation else ("registration", network(call.origin["address"]))
        await self._count(count_key(*source))
        password_hash = await call.while_connected(self.new_users.hash(call.input.password))
        now, enforced, origin = self.clock(), self.authorizer.enforced, {}
        granted: dict[str, str | None] = {"role": DEFAULT_ROLE} if enforced else {}
        async with transaction(self.engine) as connection:
            if invitation is not None:
                link = await use_link(connection, LinkPurpose.INVITATION, invitation, now, require_manager=enforced)
                if link is None:
                    raise errors.InvalidInvitation
                granted, origin = {"role": link.role, "dept": link.dept or call.input.dept}, {"invitation_id": link.id}
            new = call.input.model_copy(update=granted)
            approved = not enforced or invitation is not None
            user = await add_user(connection, new, password_hash, call.actor, now, approved=approved, **origin)
        call.response_headers["location"] = f"/api/auth/users/{user.id}"
        return user

    @operation(
        "POST", "/api/auth/invitations", "Invite someone to register with a role", Access.MANAGEMENT, creates=True,
        failures=(errors.RegistrationClosed(),), enforced_failures=(errors.HigherRoleRequired(),),
    )  # fmt: skip
    async def create_invitation(self, call: Call[InvitationInput]) -> CreatedInvitation:
        self.authorizer.require_higher(call.actor, call.input.role, "create_invitation")
        await self._check_open("create_invitation")
        now, allowed = self.clock(), call.input.model_dump(include={"role", "dept"})
        lifetime = timedelta(days=call.input.expires_in_days)
        async with transaction(self.engine) as connection:
            await lock_actor(connection, call.actor)
            link, token = await create_link(connection, LinkPurpose.INVITATION, lifetime, call.actor, now, **allowed)
            invited = Subject("invitation", link.id, link.role, after=allowed)
            await record(connection, call.actor, "created", now, invited)
        return CreatedInvitation.model_validate(link.model_dump() | {"token": token})

    @operation(
        "GET", "/api/auth/invitations", "List the invitations that have not expired, newest first", Access.MANAGEMENT
    )
    async def list_invitations(self, _call: Call[None]) -> list[InvitationOutput]:
        unexpired = (_INVITATIONS, col(SingleUseLink.expires_at) > self.clock())
        query = select(*InvitationOutput.columns(SingleUseLink)).where(*unexpired)
        newest_first = query.order_by(col(SingleUseLink.created_at).desc(), col(SingleUseLink.id).desc())
        return [InvitationOutput.model_validate(row) for row in await self.find_rows(newest_first)]

    @operation(
        "DELETE", "/api/auth/invitations/{id}", "Withdraw an unused invitation", Access.MANAGEMENT,
        enforced_failures=(errors.HigherRoleRequired(),),
    )  # fmt: skip
    async def delete_invitation(self, call: Call[None]) -> Deleted:
        unused = (_INVITATIONS, col(SingleUseLink.id) == call.id, col(SingleUseLink.used_at).is_(None))
        deletion = delete(SingleUseLink).where(*unused).returning(col(SingleUseLink.role), col(SingleUseLink.dept))
        async with transaction(self.engine) as connection:
            await lock_actor(connection, call.actor)
            row = (await connection.execute(deletion)).mappings().first()
            if row is None:
                raise errors.InvitationNotFound
            self.authorizer.require_higher(call.actor, row["role"], "delete_invitation")
            withdrawn = Subject("invitation", call.id, row["role"], before=dict(row))
            await record(connection, call.actor, "deleted", self.clock(), withdrawn)
        return Deleted(id=call.id)

    async def _check_open(self, operation: str) -> None:
        """Raise RegistrationClosed if no one may register, not even with an invitation."""
        if self.mode is RegistrationMode.CLOSED:
            raise errors.RegistrationClosed
        if self.mode is None and await self.find_row(select(col(User.id)).where(CAN_MANAGE).limit(1)) is not None:
            self.authorizer.refuse(errors.RegistrationClosed(), operation)

    async def _count(self, key: bytes) -> None:
        """Count an attempt. Raise TooManyRegistrations if there were too many and authorization is enforced."""
        if self.authorizer.mode is AuthMode.OFF:
            return
        count = (await self.counts.read([key])).get(key)
        if count is None or count.failures < self.per_address:
            # A separate transaction makes the count visible to concurrent attempts, and keeps it if the request fails.
            async with shared_transaction():
                count = (await self.counts.add([key]))[key]
            if count.failures <= self.per_address:
                return
        wait = count.begun_at + self.counts.window - self.clock()
        self.authorizer.refuse(errors.TooManyRegistrations(retry_after_seconds=wait.total_seconds()), "register")
