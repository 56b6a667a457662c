"""Creates the table `retention`, in migrations."""

import time
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from alembic import op


def create(records: str, recorded_at: sa.ColumnClause[Any]) -> None:
    """Create the table of a store that deletes rows of the table `records` by age.

    Earlier releases may have deleted rows, so an existing store is only known to be complete since its oldest row. The
    newest row shows what the clock was.
    """
    # Alembic stores the revision after the last migration, so this is None in a new store.
    is_new = op.get_context().get_current_revision() is None
    times = sa.select(sa.func.min(recorded_at), sa.func.max(recorded_at)).select_from(sa.table(records))
    oldest, newest = map(_seconds, op.get_bind().execute(times).one())
    names = ("deleted_until", "seen_at", "steady_since")
    table = op.create_table("retention", *(sa.Column(name, sa.Double) for name in names))
    op.bulk_insert(table, [dict(zip(names, (0.0 if is_new else oldest or time.time(), newest, 0.0), strict=True))])


def _seconds(moment: datetime | float | None) -> float | None:
    if isinstance(moment, datetime):  # SQLite's have no time zone
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return moment
