"""The id of the key that made a card's HMAC, no digits of the card, and an index for pages of charges.

The column last_four remains for replicas of the release before, which still write it while they are replaced.
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("charges", sa.Column("hmac_key_id", sa.String(8)))
    op.create_index("ix_charges_recorded_at", "charges", ["recorded_at", "charge_key"])
    op.execute("UPDATE charges SET last_four = NULL WHERE last_four IS NOT NULL")
