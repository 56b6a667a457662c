"""Orders, what is left to send for them, and their history. Times are seconds since 1970, by the database's clock.

It has the number of the last migration that it replaces, so that existing databases continue behind it.
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = None

OPEN = "state IN ('CHARGING', 'VOIDING')"
ACTIVE = "state IN ('CHARGING', 'VOIDING', 'SHIPPED', 'NEEDS_REFUND', 'NEEDS_REVIEW')"
LIVE = "state IN ('CHARGING', 'VOIDING', 'SHIPPED', 'DONE', 'NEEDS_REFUND', 'NEEDS_REVIEW')"
RELEASED = "state IN ('DECLINED', 'VOIDED', 'ABANDONED')"


def upgrade() -> None:
    op.create_table(
        "orders",
        sa.Column("order_id", sa.String(36), primary_key=True),
        sa.Column("scope", sa.String(64), nullable=False, unique=True),
        sa.Column("fingerprint", sa.String(64), nullable=False),
        sa.Column("user_id", sa.String(128), nullable=False),
        sa.Column("email", sa.String(254), nullable=False),
        sa.Column("cart_etag", sa.Text, nullable=False),
        sa.Column("currency_code", sa.String(3), nullable=False),
        sa.Column("total_units", sa.BigInteger, nullable=False),
        sa.Column("total_nanos", sa.Integer, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("epoch", sa.Integer, nullable=False),
        sa.Column("worker", sa.Text, nullable=False),
        sa.Column("lease_until", sa.Double, nullable=False),
        sa.Column("failures", sa.Integer, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("refusal", sa.Text, nullable=False),
        sa.Column("transaction_id", sa.Text, nullable=False),
        sa.Column("tracking_id", sa.Text, nullable=False),
        sa.Column("traceparent", sa.Text, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("updated_at", sa.Double, nullable=False),
        sa.Column("snapshot", sa.LargeBinary, nullable=False),
        sa.Column("owner", sa.String(32), nullable=False, server_default=""),
    )
    op.create_index("ix_orders_created_at", "orders", ["created_at", "order_id"])
    _create_index("ix_orders_live_cart", "orders", ["user_id", "cart_etag"], f"cart_etag <> '' AND {LIVE}", unique=True)
    _create_index("ix_orders_active", "orders", ["state", "updated_at"], ACTIVE)
    _create_index("ix_orders_open", "orders", ["state", "lease_until"], f"{OPEN} AND failures = 0")
    _create_index("ix_orders_failed", "orders", ["state", "lease_until"], f"{OPEN} AND failures > 0")
    _create_index("ix_orders_released", "orders", ["state", "created_at", "order_id"], RELEASED)
    op.create_table(
        "outbox",
        sa.Column("order_id", sa.String(36), primary_key=True),
        sa.Column("kind", sa.String(16), primary_key=True),
        sa.Column("due_at", sa.Double, nullable=False),
        sa.Column("failures", sa.Integer, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("dead_at", sa.Double),
    )
    _create_index("ix_outbox_new", "outbox", ["kind", "due_at"], "dead_at IS NULL AND failures = 0")
    _create_index("ix_outbox_failed", "outbox", ["kind", "due_at"], "dead_at IS NULL AND failures > 0")
    _create_index("ix_outbox_dead", "outbox", ["kind"], "dead_at IS NOT NULL")
    op.create_table(
        "order_events",
        sa.Column("order_id", sa.String(36), primary_key=True),
        sa.Column("epoch", sa.Integer, primary_key=True),
        sa.Column("step", sa.String(32), primary_key=True),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
        sqlite_with_rowid=False,
    )


def _create_index(name: str, table: str, columns: list[str], condition: str, *, unique: bool = False) -> None:
    where = sa.text(condition)
    op.create_index(name, table, columns, unique=unique, sqlite_where=where, postgresql_where=where)
