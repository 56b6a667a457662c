"""Adds a table that records the time up to which retention has deleted orders."""

import sqlalchemy as sa

from chassis.sql import retention_table

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    retention_table.create("orders", sa.column("created_at", sa.Double))
