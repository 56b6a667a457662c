"""Creates the `retention` table. Called by migrations."""

import time
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from alembic import op


def create(records: str, recorded_at: sa.ColumnClause[Any]) -> None:
    """Create the `retention` table for a store that deletes old rows from the table `records`.

    Earlier releases may have deleted rows, so an existing store is known to be complete only from its oldest row on.
    Its newest row's time serves as the last known clock time.
    """
    # Alembic stores the revision after the last migration, so a new store has no revision yet.
    is_new = op.get_context().get_current_revision() is None
    times = sa.select(sa.func.min(recorded_at), sa.func.max(recorded_at)).select_from(sa.table(records))
    oldest, newest = map(_seconds, op.get_bind().execute(times).one())
    names = ("deleted_until", "seen_at", "steady_since")
    table = op.create_table("retention", *(sa.Column(name, sa.Double) for name in names))
    op.bulk_insert(table, [dict(zip(names, (0.0 if is_new else oldest or time.time(), newest, 0.0), strict=True))])


def _seconds(moment: datetime | float | None) -> float | None:
    if isinstance(moment, datetime):  # datetimes from SQLite have no time zone
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return moment
