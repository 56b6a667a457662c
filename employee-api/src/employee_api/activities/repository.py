"""Activities in the database. They are recorded in the transaction of the change itself: both commit or neither."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import insert, select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from sqlmodel import col

from employee_api.access import Actor
from employee_api.activities.schemas import ActivityOutput, ActivityPage, ActivityQuery
from employee_api.fields import format_timestamp
from employee_api.models import Activity
from employee_api.months import in_month
from employee_api.pagination import fetch_page

_COLUMNS = [getattr(Activity, name) for name in ActivityOutput.model_fields]
_FILTERS = {"subject": Activity.subject_id, "actor": Activity.actor_id, "action": Activity.action}


@dataclass(frozen=True)
class Subject:
    """The user or task that an action changed; `changes` maps each field to its value before and after."""

    type: str
    id: uuid.UUID
    name: str
    changes: Mapping[str, Any]


class ActivityRepository:
    def __init__(self, engine: AsyncEngine) -> None:
        self._reads = engine.execution_options(isolation_level="AUTOCOMMIT")

    async def search(self, query: ActivityQuery) -> ActivityPage:
        """Return a page of the activities that match every given filter."""
        given = query.model_dump(include=set(_FILTERS), exclude_none=True)
        matching = select(*_COLUMNS).where(*(col(_FILTERS[name]) == value for name, value in given.items()))
        if query.month is not None:
            matching = matching.where(in_month(col(Activity.created_at), query.month))
        return await fetch_page(self._reads, matching, Activity, query, ActivityPage)


async def record(
    connection: AsyncConnection, actor: Actor | None, action: str, subjects: Sequence[Subject], at: datetime
) -> None:
    """Insert one activity for each subject."""
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


def change(before: Any, after: Any) -> dict[str, Any]:
    """Return a field's values before and after as JSON values."""
    return {"before": _json_value(before), "after": _json_value(after)}


def _json_value(value: Any) -> Any:
    if isinstance(value, datetime):
        return format_timestamp(value)
    return value if value is None or isinstance(value, int) else str(value)
