"""Adds a column for the fingerprint of the caller's own request. It is NULL in charges that older releases recorded."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.add_column("charges", sa.Column("request_fingerprint", sa.String(64)))
