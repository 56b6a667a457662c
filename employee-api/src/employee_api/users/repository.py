import random
import uuid
from datetime import datetime

from sqlalchemy import ColumnElement, Insert, RowMapping, Update, and_, insert, or_, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlmodel import col

from employee_api.access import MANAGEMENT_ROLES, Actor
from employee_api.activities import Subject, record
from employee_api.database import Repository, is_unique_violation, transaction
from employee_api.errors import AuthenticationRequired, EmailTaken, LastManagementUser, UserNotFound
from employee_api.fields import email_key, parse_id
from employee_api.models import User
from employee_api.users.schemas import DEFAULT_ROLE, AccountOutput, UserInput, UserOutput

COLORS = ("#818cf8", "#f59e0b", "#34d399", "#f472b6", "#fb923c", "#60a5fa", "#a78bfa")
RECORDED_FIELDS = {"name", "email", "role", "dept"}
CAN_MANAGE: ColumnElement[bool] = and_(
    col(User.role).in_(MANAGEMENT_ROLES), col(User.approved), col(User.deactivated_at).is_(None)
)


class UserRepository(Repository):
    async def find(self, **unique: object) -> User | None:
        """Return the user with the given `id` or `email_key`, or None if there is no such user."""
        row = await self.find_row(select(User).filter_by(**unique))
        return User(**row) if row else None

    async def find_role(self, user_id: str) -> str | None:
        """Return a user's role, or None for an unknown or malformed id."""
        row = await self.find_row(select(col(User.role)).where(col(User.id) == parse_id(user_id)))
        return None if row is None else row["role"]

    async def update_password_hash(self, user: User, password_hash: str) -> None:
        """Store a new hash of the same password, unless the password has since been changed."""
        unchanged = (col(User.id) == user.id, col(User.password_hash) == user.password_hash)
        await self.execute(update(User).where(*unchanged).values(password_hash=password_hash))

    async def lock_unchanged(self, user: User) -> bool:
        """Lock the user until the transaction ends; return whether they are still active with the same password."""
        same = (col(User.id) == user.id, col(User.password_hash) == user.password_hash)
        query = select(col(User.id)).where(*same, col(User.deactivated_at).is_(None)).with_for_update(read=True)
        async with transaction(self.engine) as connection:
            return (await connection.execute(query)).first() is not None


async def add_user(
    connection: AsyncConnection,
    new: UserInput,
    password_hash: str,
    actor: Actor | None,
    now: datetime,
    *,
    approved: bool = True,
    **origin: uuid.UUID,
) -> UserOutput:
    """Create and return a user, and record where they come from. Raise EmailTaken if another user has the e-mail."""
    user = User(
        id=uuid.uuid4(),
        name=new.name,
        email=new.email,
        email_key=email_key(new.email),
        password_hash=password_hash,
        role=new.role or DEFAULT_ROLE,
        color=random.SystemRandom().choice(COLORS),
        avatar=avatar(new.name),
        dept=new.dept or "",
        approved=approved,
        created_at=now,
    )
    await save_user(connection, insert(User).values(user.model_dump()))
    recorded = user.model_dump(include=RECORDED_FIELDS) | origin
    await record(connection, actor, "created", now, Subject("user", user.id, user.name, after=recorded))
    return UserOutput.model_validate(user)


def avatar(name: str) -> str:
    """Return the initials of the name's first two words, in upper case."""
    return "".join(word[0] for word in name.split(" ") if word)[:2].upper()


async def save_user(connection: AsyncConnection, statement: Insert | Update) -> None:
    """Insert or update a user. Raise EmailTaken if another user has the e-mail."""
    try:
        await connection.execute(statement)
    except IntegrityError as error:
        if not is_unique_violation(error):
            raise
        raise EmailTaken from error


async def lock_user(
    connection: AsyncConnection, user_id: uuid.UUID, actor: Actor | None, *, ends_management: str | None = None
) -> AccountOutput:
    """Lock a user and the actor until the transaction ends, and return the user.

    `ends_management` names a change after which the user can't manage others, such as "deleted". In that case, all
    management users are locked, so that two concurrent changes can't remove the last two of them.

    Raise UserNotFound if there is no such user, LastManagementUser if no one else could manage others after the change,
    and AuthenticationRequired if the actor has been deleted or deactivated.
    """
    conditions: list[ColumnElement[bool]] = [col(User.id).in_([user_id, *([actor.id] if actor else [])])]
    if ends_management is not None:
        conditions.append(CAN_MANAGE)
    users = await lock_users(connection, or_(*conditions))
    if actor is not None and (actor.id not in users or users[actor.id]["deactivated_at"] is not None):
        raise AuthenticationRequired
    if user_id not in users:
        raise UserNotFound
    if ends_management is not None and {row["id"] for row in users.values() if can_manage(row)} == {user_id}:
        raise LastManagementUser(ends_management)
    return AccountOutput.model_validate(users[user_id])


async def lock_actor(connection: AsyncConnection, actor: Actor | None) -> None:
    """Lock the actor, if there is one. Raise AuthenticationRequired if they have been deleted or deactivated."""
    if actor is not None:
        await lock_user(connection, actor.id, actor)


def can_manage(row: RowMapping) -> bool:
    return row["role"] in MANAGEMENT_ROLES and row["approved"] and row["deactivated_at"] is None


async def lock_users(connection: AsyncConnection, condition: ColumnElement[bool]) -> dict[uuid.UUID, RowMapping]:
    """Lock the users that match the condition until the transaction ends, and return their accounts by id."""
    query = select(*AccountOutput.columns(User)).where(condition).order_by(col(User.id)).with_for_update()
    return {row["id"]: row for row in (await connection.execute(query)).mappings()}
