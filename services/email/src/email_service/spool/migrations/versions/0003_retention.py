"""Adds a table that records the time up to which retention has deleted messages."""

import sqlalchemy as sa

from chassis.sql import retention_table

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    retention_table.create("letters", sa.column("accepted_at", sa.Double))
