"""Carts, and the idempotency keys of additions."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "carts",
        sa.Column("user_id", sa.String(128), primary_key=True),
        # Increases with each change: unlike etags, versions never repeat.
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("etag", sa.String(128), nullable=False),
        # A JSON object that maps product ids to quantities.
        sa.Column("quantities", sa.Text, nullable=False),
        sa.Column("anonymous", sa.Boolean, nullable=False),
        # When the cart expires, in seconds since 1970.
        sa.Column("ends_at", sa.Float, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_carts_ends_at", "carts", ["ends_at"])
    op.create_index("ix_carts_anonymous", "carts", ["anonymous", "ends_at"])
    op.create_table(
        "cart_keys",
        sa.Column("user_id", sa.String(128), primary_key=True),
        sa.Column("cart_key", sa.String(255), primary_key=True),
        sa.Column("added", sa.Text, nullable=False),
        sa.Column("ends_at", sa.Float, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_cart_keys_ends_at", "cart_keys", ["ends_at"])
