"""Drops the index of all orders by state, which every order paid for three times.

PostgreSQL also preferred it to the primary key. Operators find unfinished orders by ix_orders_active, finished ones by
their time, and orders without effect, which are few, by an index of their own.
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

RELEASED_CART = sa.text("state IN ('DECLINED', 'VOIDED', 'ABANDONED')")


def upgrade() -> None:
    op.drop_index("ix_orders_state", "orders")
    columns = ["state", "created_at", "order_id"]
    op.create_index("ix_orders_released", "orders", columns, sqlite_where=RELEASED_CART, postgresql_where=RELEASED_CART)
