"""Users in the database."""

import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import RowMapping, case, delete, insert, or_, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from sqlmodel import col

from employee_api.activities import Actor, Subject, change, record
from employee_api.errors import AuthenticationRequired, EmailTaken, LastLeader, UserNotFound
from employee_api.models import Task, User
from employee_api.rules import LEADERS, avatar, email_key, pick_color
from employee_api.schemas import UserOutput

Clock = Callable[[], datetime]

_SHOWN_NAMES = tuple(UserOutput.model_fields)
_SHOWN = [getattr(User, name) for name in _SHOWN_NAMES]


@dataclass(frozen=True)
class NewUser:
    """An employee to be; the password is hashed already."""

    name: str
    email: str
    password_hash: str
    role: str
    dept: str


@dataclass(frozen=True)
class Account:
    """What a login needs to know."""

    user: UserOutput
    password_hash: str


class UserRepository:
    """Users, and what goes with them when they leave."""

    def __init__(self, engine: AsyncEngine, clock: Clock, chance: random.Random) -> None:
        self._engine = engine
        self._reads = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._clock = clock
        self._chance = chance

    async def everyone(self) -> list[UserOutput]:
        """All users, the oldest first."""
        async with self._reads.connect() as connection:
            rows = await connection.execute(select(*_SHOWN).order_by(col(User.created_at), col(User.id)))
            # They were validated when they were stored; a list of thousands need not be again.
            return [UserOutput.model_construct(None, **dict(zip(_SHOWN_NAMES, row, strict=True))) for row in rows]

    async def account(self, email: str) -> Account | None:
        """The user with an e-mail, however it is spelled."""
        query = select(*_SHOWN, col(User.password_hash)).where(col(User.email_key) == email_key(email))
        async with self._reads.connect() as connection:
            row = (await connection.execute(query)).mappings().first()
        return None if row is None else Account(UserOutput.model_validate(row), row["password_hash"])

    async def replace_hash(self, account: Account, better: str) -> None:
        """Store a better hash of the same password, unless it has changed meanwhile."""
        same = (col(User.id) == account.user.id, col(User.password_hash) == account.password_hash)
        async with self._engine.begin() as connection:
            await connection.execute(update(User).where(*same).values(password_hash=better))

    async def add(self, new: NewUser, actor: Actor | None) -> UserOutput:
        """Create a user. Raises EmailTaken."""
        now = self._clock()
        user = UserOutput(
            id=uuid.uuid4(),
            name=new.name,
            role=new.role,
            email=new.email,
            color=pick_color(self._chance),
            avatar=avatar(new.name),
            dept=new.dept,
        )
        row = user.model_dump() | {
            "email_key": email_key(new.email),
            "password_hash": new.password_hash,
            "created_at": now,
        }
        created = {field: change(None, row[field]) for field in ("name", "email", "role", "dept")}
        async with self._engine.begin() as connection:
            try:
                await connection.execute(insert(User).values(row))
            except IntegrityError as error:  # users have one constraint that input can break
                raise EmailTaken from error
            await record(connection, actor, "created", [Subject("user", user.id, user.name, created)], now)
        return user

    async def remove(self, user_id: uuid.UUID, actor: Actor | None, *, keep_a_leader: bool) -> None:
        """Delete a user, taking them off all tasks first; comments and activities are left without them.

        Raises UserNotFound, and LastLeader when `keep_a_leader` and no other leader is left.
        """
        now = self._clock()
        async with self._engine.begin() as connection:
            user = await _lock_user(connection, user_id, actor, keep_a_leader=keep_a_leader)
            await _detach(connection, user_id, actor, now)
            await connection.execute(delete(User).where(col(User.id) == user_id))
            # Who deletes themselves is gone when the activity is written.
            remaining = None if actor and actor.id == user_id else actor
            deleted = {field: change(getattr(user, field), None) for field in ("name", "email", "role", "dept")}
            await record(connection, remaining, "deleted", [Subject("user", user_id, user.name, deleted)], now)


async def _lock_user(
    connection: AsyncConnection, user_id: uuid.UUID, actor: Actor | None, *, keep_a_leader: bool
) -> UserOutput:
    """Lock everybody on whom the deletion depends, by id, so that two deletions can't pass each other's checks."""
    concerned = [col(User.id).in_([user_id, *([actor.id] if actor else [])])]
    if keep_a_leader:
        concerned.append(col(User.role).in_(LEADERS))
    rows = await connection.execute(select(*_SHOWN).where(or_(*concerned)).order_by(col(User.id)).with_for_update())
    users = {row["id"]: UserOutput.model_validate(row) for row in rows.mappings()}
    if actor is not None and actor.id not in users:
        raise AuthenticationRequired
    if user_id not in users:
        raise UserNotFound
    others = [user for user in users.values() if user.id != user_id and user.role in LEADERS]
    if keep_a_leader and users[user_id].role in LEADERS and not others:
        raise LastLeader
    return users[user_id]


async def _detach(connection: AsyncConnection, user_id: uuid.UUID, actor: Actor | None, now: datetime) -> None:
    """Take a user off every task, telling so in an activity for each."""
    assigned, reported = col(Task.assignee_id) == user_id, col(Task.reporter_id) == user_id
    fields = (col(Task.id), col(Task.title), col(Task.assignee_id), col(Task.reporter_id))
    affected = select(*fields).where(or_(assigned, reported)).order_by(col(Task.id)).with_for_update()
    tasks = (await connection.execute(affected)).mappings().all()
    await connection.execute(
        update(Task)
        .where(or_(assigned, reported))
        .values(
            assignee_id=case((assigned, None), else_=col(Task.assignee_id)),
            reporter_id=case((reported, None), else_=col(Task.reporter_id)),
            updated_at=now,
        )
    )
    remaining = None if actor and actor.id == user_id else actor
    await record(connection, remaining, "updated", [_detached(task, user_id) for task in tasks], now)


def _detached(task: RowMapping, user_id: uuid.UUID) -> Subject:
    lost = [name for name in ("assignee_id", "reporter_id") if task[name] == user_id]
    return Subject("task", task["id"], task["title"], {name: change(user_id, None) for name in lost})
