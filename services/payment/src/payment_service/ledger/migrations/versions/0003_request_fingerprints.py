"""Adds the fingerprint that the caller sends for its own request; NULL in charges that older releases wrote."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.add_column("charges", sa.Column("request_fingerprint", sa.String(64)))
