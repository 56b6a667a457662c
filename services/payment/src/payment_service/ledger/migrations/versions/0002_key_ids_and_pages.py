"""Adds the id of the HMAC key and an index for listing charges, and deletes the last four digits of card numbers.

The column last_four is kept, because replicas of the previous release write to it until they have been replaced.
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("charges", sa.Column("hmac_key_id", sa.String(8)))
    op.create_index("ix_charges_recorded_at", "charges", ["recorded_at", "charge_key"])
    op.execute("UPDATE charges SET last_four = NULL WHERE last_four IS NOT NULL")
