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
        # Who accepted the mismatch, and why; empty if it was not accepted.
        sa.Column("accepted", sa.Text, nullable=False),
    )
