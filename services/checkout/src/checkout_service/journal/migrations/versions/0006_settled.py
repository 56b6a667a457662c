"""Adds settled orders to the index of orders that ended without being placed."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

NOT_PLACED = sa.text("state IN ('DECLINED', 'VOIDED', 'ABANDONED', 'SETTLED')")


def upgrade() -> None:
    op.drop_index("ix_orders_released", "orders")
    columns = ["state", "created_at", "order_id"]
    op.create_index("ix_orders_not_placed", "orders", columns, sqlite_where=NOT_PLACED, postgresql_where=NOT_PLACED)
