"""Adds a table of the mismatches that reconciliation finds. Each stays open until the records agree."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.create_table(
        "mismatches",
        sa.Column("order_id", sa.String(255), primary_key=True),
        sa.Column("kind", sa.String(32), primary_key=True),
        sa.Column("since", sa.Double, nullable=False),
        # Which operator closed the mismatch although the records disagree, and why.
        sa.Column("accepted", sa.Text, nullable=False),
    )
