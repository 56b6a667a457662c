"""Creates the table `retention`, in migrations."""

import time
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from alembic import op


def create(records: str, recorded_at: sa.ColumnClause[Any]) -> None:
    """Create the table of a store whose rows in the table `records` are deleted by age.

    What earlier releases have deleted is unknown, so an existing store is only known to be complete since its oldest
    row. Its newest row shows what its clock was.
    """
    # Alembic stores the revision after the last migration, so this is None in a new store.
    is_new = op.get_context().get_current_revision() is None
    times = sa.select(sa.func.min(recorded_at), sa.func.max(recorded_at)).select_from(sa.table(records))
    oldest, newest = map(_seconds, op.get_bind().execute(times).one())
    table = op.create_table(
        "retention",
        sa.Column("deleted_until", sa.Double, nullable=False),
        sa.Column("seen_at", sa.Double),
        sa.Column("steady_since", sa.Double, nullable=False),
    )
    deleted_until = 0.0 if is_new else oldest or time.time()
    op.bulk_insert(table, [{"deleted_until": deleted_until, "seen_at": newest, "steady_since": 0.0}])


def _seconds(moment: datetime | float | None) -> float | None:
    if isinstance(moment, datetime):  # SQLite's have no time zone
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return moment
