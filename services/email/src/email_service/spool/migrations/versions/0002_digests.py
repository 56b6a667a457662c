"""Adds digests, so that reconciliation can compare confirmations with orders after deleting recipient and text."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("letters", sa.Column("digests", sa.LargeBinary))
