"""Adds dead letters, and indexes for the queries that operators and background loops run."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

ACTIVE = "state IN ('CHARGING', 'VOIDING', 'SHIPPED', 'NEEDS_REFUND', 'NEEDS_REVIEW')"
OPEN = "state IN ('CHARGING', 'VOIDING')"


def upgrade() -> None:
    op.add_column("outbox", sa.Column("dead_at", sa.Double))
    op.drop_index("ix_outbox_due_at", "outbox")
    op.execute("CREATE INDEX ix_outbox_new ON outbox (kind, due_at) WHERE dead_at IS NULL AND failures = 0")
    op.execute("CREATE INDEX ix_outbox_failed ON outbox (kind, due_at) WHERE dead_at IS NULL AND failures > 0")
    op.execute("CREATE INDEX ix_outbox_dead ON outbox (kind) WHERE dead_at IS NOT NULL")
    op.drop_index("ix_orders_active", "orders")
    op.execute(f"CREATE INDEX ix_orders_active ON orders (state, updated_at) WHERE {ACTIVE}")
    op.execute(f"CREATE INDEX ix_orders_open ON orders (state, lease_until) WHERE {OPEN} AND failures = 0")
    op.execute(f"CREATE INDEX ix_orders_failed ON orders (state, lease_until) WHERE {OPEN} AND failures > 0")
    op.create_index("ix_orders_state", "orders", ["state", "created_at", "order_id"])
