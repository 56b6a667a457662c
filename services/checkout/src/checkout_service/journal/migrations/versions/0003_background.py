"""Adds dead letters, and indexes for the queries of operators and background loops."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

ACTIVE = "state IN ('CHARGING', 'VOIDING', 'SHIPPED', 'NEEDS_REFUND', 'NEEDS_REVIEW')"
OPEN = "state IN ('CHARGING', 'VOIDING')"


def upgrade() -> None:
    op.add_column("outbox", sa.Column("dead_at", sa.Double))
    op.drop_index("ix_outbox_due_at", "outbox")
    _create_index("ix_outbox_new", "outbox", ["kind", "due_at"], "dead_at IS NULL AND failures = 0")
    _create_index("ix_outbox_failed", "outbox", ["kind", "due_at"], "dead_at IS NULL AND failures > 0")
    _create_index("ix_outbox_dead", "outbox", ["kind"], "dead_at IS NOT NULL")
    op.drop_index("ix_orders_active", "orders")
    _create_index("ix_orders_active", "orders", ["state", "updated_at"], ACTIVE)
    _create_index("ix_orders_open", "orders", ["state", "lease_until"], f"{OPEN} AND failures = 0")
    _create_index("ix_orders_failed", "orders", ["state", "lease_until"], f"{OPEN} AND failures > 0")
    op.create_index("ix_orders_state", "orders", ["state", "created_at", "order_id"])


def _create_index(name: str, table: str, columns: list[str], condition: str) -> None:
    where = sa.text(condition)
    op.create_index(name, table, columns, sqlite_where=where, postgresql_where=where)
