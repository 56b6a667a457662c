"""Adds the record of the clock, so that carts are not deleted because it has jumped."""

import sqlalchemy as sa

from chassis.sql import retention_table

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    # No column of a cart tells when the cart was changed.
    retention_table.create("carts", sa.literal_column("CAST(NULL AS FLOAT)", sa.Double))
