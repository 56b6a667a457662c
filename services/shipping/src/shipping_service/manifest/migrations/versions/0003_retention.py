"""Adds a table that records the time up to which retention has deleted shipments."""

import sqlalchemy as sa

from chassis.sql import retention_table

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    retention_table.create("shipments", sa.column("recorded_at", sa.DateTime(timezone=True)))
