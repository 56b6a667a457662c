"""Adds a column that records who closed an unsent message, and why."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.add_column("letters", sa.Column("closed", sa.Text, nullable=False, server_default=""))
