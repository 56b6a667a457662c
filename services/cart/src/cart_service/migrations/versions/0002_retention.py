"""Adds the `retention` table, which records clock jumps, so that a jump doesn't delete carts."""

import sqlalchemy as sa

from chassis.sql import retention_table

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    # The `carts` table doesn't record when a cart last changed, so there is nothing to copy.
    retention_table.create("carts", sa.literal_column("CAST(NULL AS FLOAT)", sa.Double))
