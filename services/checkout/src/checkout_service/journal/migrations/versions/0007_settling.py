"""Adds SETTLING to the indexes of unfinished orders and of orders that hold their cart."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

OPEN = "'CHARGING', 'VOIDING', 'SETTLING'"
ACTIVE = f"{OPEN}, 'SHIPPED', 'NEEDS_REFUND', 'NEEDS_REVIEW'"
LIVE = f"{OPEN}, 'SHIPPED', 'DONE', 'NEEDS_REFUND', 'NEEDS_REVIEW'"
INDEXES = {
    "ix_orders_active": (["state", "updated_at"], f"state IN ({ACTIVE})"),
    "ix_orders_open": (["state", "lease_until"], f"state IN ({OPEN}) AND failures = 0"),
    "ix_orders_failed": (["state", "lease_until"], f"state IN ({OPEN}) AND failures > 0"),
    "ix_orders_live_cart": (["user_id", "cart_etag"], f"cart_etag <> '' AND state IN ({LIVE})"),
}


def upgrade() -> None:
    for name, (columns, condition) in INDEXES.items():
        op.drop_index(name, "orders")
        where, unique = sa.text(condition), name == "ix_orders_live_cart"
        op.create_index(name, "orders", columns, unique=unique, sqlite_where=where, postgresql_where=where)
