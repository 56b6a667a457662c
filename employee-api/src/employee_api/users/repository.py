"""Users in the database."""

import random
import uuid
from dataclasses import asdict, dataclass

from sqlalchemy import insert, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlmodel import col

from employee_api.access import Actor
from employee_api.activities import Subject, record
from employee_api.database import Repository, is_unique_violation, transaction
from employee_api.errors import EmailTaken
from employee_api.models import User
from employee_api.users.rules import COLORS, avatar, email_key
from employee_api.users.schemas import UserOutput

RECORDED_FIELDS = ("name", "email", "role", "dept")


@dataclass(frozen=True)
class NewUser:
    """A user to create, with the hash of their password."""

    name: str
    email: str
    password_hash: str
    role: str
    dept: str
    approved: bool = True


@dataclass(frozen=True)
class Account:
    """A user with the data that verifying a login requires."""

    user: UserOutput
    password_hash: str
    deactivated: bool


class UserRepository(Repository):
    async def list_all(self) -> list[UserOutput]:
        """Return all users, oldest first."""
        async with self.reads.connect() as connection:
            query = select(*UserOutput.columns(User)).order_by(col(User.created_at), col(User.id))
            rows, names = await connection.execute(query), UserOutput.model_fields
            # Validating thousands of stored values again would take most of the request's time.
            return [UserOutput.model_construct(None, **dict(zip(names, row, strict=True))) for row in rows]

    async def find_account(self, **unique: object) -> Account | None:
        """Return the account with this `id` or `email_key`."""
        columns = (*UserOutput.columns(User), col(User.password_hash), col(User.deactivated_at))
        row = await self.find_row(select(*columns).filter_by(**unique))
        if row is None:
            return None
        return Account(UserOutput.model_validate(row), row["password_hash"], row["deactivated_at"] is not None)

    async def update_password_hash(self, account: Account, password_hash: str) -> None:
        """Replace the hash of the same password, unless the password has changed in the meantime."""
        unchanged = (col(User.id) == account.user.id, col(User.password_hash) == account.password_hash)
        await self.execute(update(User).where(*unchanged).values(password_hash=password_hash))

    async def lock_unchanged(self, account: Account) -> bool:
        """Return whether the account is active with the same password, and lock it until the transaction ends."""
        same = (col(User.id) == account.user.id, col(User.password_hash) == account.password_hash)
        query = select(col(User.id)).where(*same, col(User.deactivated_at).is_(None)).with_for_update(read=True)
        async with transaction(self.engine) as connection:
            return (await connection.execute(query)).first() is not None

    async def add(self, new: NewUser, actor: Actor | None) -> UserOutput:
        """Create a user and return them. Raises EmailTaken."""
        async with transaction(self.engine) as connection:
            return await self.add_within(connection, new, actor)

    async def add_within(
        self, connection: AsyncConnection, new: NewUser, actor: Actor | None, invitation_id: uuid.UUID | None = None
    ) -> UserOutput:
        """Create a user in a transaction, optionally by an invitation, and return them. Raises EmailTaken."""
        now = self.clock()
        user = User(
            id=uuid.uuid4(),
            email_key=email_key(new.email),
            color=random.SystemRandom().choice(COLORS),
            avatar=avatar(new.name),
            created_at=now,
            **asdict(new),
        )
        recorded = {field: getattr(user, field) for field in RECORDED_FIELDS}
        if invitation_id is not None:
            recorded["invitation_id"] = invitation_id
        try:
            await connection.execute(insert(User).values(user.model_dump()))
        except IntegrityError as error:
            if not is_unique_violation(error):
                raise
            raise EmailTaken from error
        await record(connection, actor, "created", now, Subject("user", user.id, user.name, after=recorded))
        return UserOutput.model_validate(user)
