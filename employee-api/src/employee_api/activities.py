"""The record of who did what. It is written in the transaction of the change itself, so neither is there alone."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import insert, select
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlmodel import col

from employee_api.errors import AuthenticationRequired
from employee_api.models import Activity, User


@dataclass(frozen=True)
class Actor:
    """The user of the request's session."""

    id: uuid.UUID
    role: str


@dataclass(frozen=True)
class Subject:
    """What something was done to; `changes` maps a field to its value before and after."""

    type: str
    id: uuid.UUID
    name: str
    changes: Mapping[str, Any]


def change(before: Any, after: Any) -> dict[str, Any]:
    """One field's value before and after, as JSON."""
    return {"before": _plain(before), "after": _plain(after)}


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, int) else str(value)


async def record(
    connection: AsyncConnection, actor: Actor | None, action: str, subjects: Sequence[Subject], at: datetime
) -> None:
    """Write one activity for each subject."""
    rows = [
        {
            "id": uuid.uuid4(),
            "actor_id": actor and actor.id,
            "action": action,
            "subject_type": subject.type,
            "subject_id": subject.id,
            "subject_name": subject.name,
            "changes": dict(subject.changes),
            "created_at": at,
        }
        for subject in subjects
    ]
    if rows:
        await connection.execute(insert(Activity), rows)


async def hold_users(connection: AsyncConnection, actor: Actor | None, *others: uuid.UUID | None) -> set[uuid.UUID]:
    """Keep users from being deleted until the transaction ends; tells which of `others` exist.

    Every transaction locks users first, by id, and tasks after them: no two can wait for each other.
    Raises AuthenticationRequired when the actor is gone, and the session with them.
    """
    wanted = {user_id for user_id in (actor and actor.id, *others) if user_id is not None}
    if not wanted:
        return set()
    query = select(col(User.id)).where(col(User.id).in_(wanted)).order_by(col(User.id))
    held = set((await connection.execute(query.with_for_update(read=True, key_share=True))).scalars())
    if actor is not None and actor.id not in held:
        raise AuthenticationRequired
    return held
