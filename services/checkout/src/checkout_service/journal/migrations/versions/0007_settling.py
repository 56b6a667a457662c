"""Adds SETTLING to the indexes on unfinished orders and on orders that hold their cart."""

from alembic import op

revision = "0007"
down_revision = "0006"

OPEN = "'CHARGING', 'VOIDING', 'SETTLING'"
ACTIVE = f"{OPEN}, 'SHIPPED', 'NEEDS_REFUND', 'NEEDS_REVIEW'"
LIVE = f"{OPEN}, 'SHIPPED', 'DONE', 'NEEDS_REFUND', 'NEEDS_REVIEW'"


def upgrade() -> None:
    for name in ("ix_orders_active", "ix_orders_open", "ix_orders_failed", "ix_orders_live_cart"):
        op.drop_index(name, "orders")
    op.execute(f"CREATE INDEX ix_orders_active ON orders (state, updated_at) WHERE state IN ({ACTIVE})")
    op.execute(f"CREATE INDEX ix_orders_open ON orders (state, lease_until) WHERE state IN ({OPEN}) AND failures = 0")
    op.execute(f"CREATE INDEX ix_orders_failed ON orders (state, lease_until) WHERE state IN ({OPEN}) AND failures > 0")
    op.execute(
        "CREATE UNIQUE INDEX ix_orders_live_cart ON orders (user_id, cart_etag) "
        f"WHERE cart_etag <> '' AND state IN ({LIVE})"
    )
