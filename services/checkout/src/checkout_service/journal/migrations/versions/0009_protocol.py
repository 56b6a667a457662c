"""Adds the protocol number and a table of replicas, and enforces one live order per cart even during upgrades."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"

LIVE = (
    "cart_etag <> '' AND "
    "state IN ('CHARGING', 'VOIDING', 'SETTLING', 'SHIPPED', 'DONE', 'NEEDS_REFUND', 'NEEDS_REVIEW')"
)
GENERATION = "CASE WHEN length({0}cart_etag) = 32 THEN substr({0}cart_etag, 1, 16) ELSE {0}cart_etag END"

# Two releases running side by side could order a cart twice. Let the newest order keep the cart, as in migration 0002.
SEPARATE_ORDERS_OF_ONE_CART = f"""
    UPDATE orders SET cart_etag = cart_etag || '#' || order_id
    WHERE {LIVE} AND EXISTS (
        SELECT 1 FROM orders AS newer
        WHERE newer.user_id = orders.user_id AND {GENERATION.format("newer.")} = {GENERATION.format("orders.")}
            AND newer.order_id > orders.order_id AND newer.{LIVE.replace("state", "newer.state")}
    )
"""  # noqa: S608 - constants


def upgrade() -> None:
    protocol = op.create_table("protocol", sa.Column("number", sa.Integer, nullable=False))
    op.bulk_insert(protocol, [{"number": 1}])
    op.create_table(
        "replicas",
        sa.Column("worker", sa.Text, primary_key=True),
        sa.Column("protocol", sa.Integer, nullable=False),
        sa.Column("seen_at", sa.Double, nullable=False),
    )
    op.execute(f"CREATE INDEX ix_orders_cart ON orders (user_id, ({GENERATION.format('')}))")
    op.drop_index("ix_orders_live_cart", "orders")
    op.execute(SEPARATE_ORDERS_OF_ONE_CART)
    op.drop_index("ix_orders_cart", "orders")
    op.execute(f"CREATE UNIQUE INDEX ix_orders_live_cart ON orders (user_id, ({GENERATION.format('')})) WHERE {LIVE}")
