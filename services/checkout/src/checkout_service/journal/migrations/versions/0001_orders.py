"""Creates the tables for orders, outbox items and order events. The database sets times, in seconds since 1970."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "orders",
        sa.Column("order_id", sa.String(36), primary_key=True),
        sa.Column("scope", sa.String(64), nullable=False, unique=True),
        sa.Column("fingerprint", sa.String(64), nullable=False, index=True),
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
        sa.Column("answer", sa.LargeBinary),
    )
    active = "state IN ('CHARGING', 'VOIDING', 'SHIPPED', 'NEEDS_REFUND')"
    op.execute(f"CREATE INDEX ix_orders_active ON orders (state, lease_until) WHERE {active}")
    op.create_table(
        "outbox",
        sa.Column("order_id", sa.String(36), primary_key=True),
        sa.Column("kind", sa.String(16), primary_key=True),
        sa.Column("due_at", sa.Double, nullable=False, index=True),
        sa.Column("failures", sa.Integer, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
    )
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
