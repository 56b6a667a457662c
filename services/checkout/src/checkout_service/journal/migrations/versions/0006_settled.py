"""Adds settled orders to the index on orders that ended without being placed."""

from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.drop_index("ix_orders_released", "orders")
    op.execute(
        "CREATE INDEX ix_orders_not_placed ON orders (state, created_at, order_id) "
        "WHERE state IN ('DECLINED', 'VOIDED', 'ABANDONED', 'SETTLED')"
    )
