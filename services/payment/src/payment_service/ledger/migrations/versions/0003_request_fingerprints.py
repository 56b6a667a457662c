"""Adds the fingerprint that callers send for their own request. It is NULL in charges recorded by older releases."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.add_column("charges", sa.Column("request_fingerprint", sa.String(64)))
