"""Adds digests, so that confirmations can be reconciled with orders after their recipient and text are deleted."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("letters", sa.Column("digests", sa.LargeBinary))
