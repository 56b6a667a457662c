"""Adds claim owners, a limit of one live order per cart, the state NEEDS_REVIEW, and an index for listing by time."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_LIVE = "state IN ('CHARGING', 'VOIDING', 'SHIPPED', 'DONE', 'NEEDS_REFUND', 'NEEDS_REVIEW')"
_ACTIVE = "state IN ('CHARGING', 'VOIDING', 'SHIPPED', 'NEEDS_REFUND', 'NEEDS_REVIEW')"

# Earlier releases could order a cart twice, under two keys. Let the newest order keep the cart, and give the older
# orders etags that match no cart.
_SEPARATE_ORDERS_OF_ONE_CART = f"""
    UPDATE orders SET cart_etag = cart_etag || '#' || order_id
    WHERE cart_etag <> '' AND {_LIVE} AND EXISTS (
        SELECT 1 FROM orders AS newer
        WHERE newer.user_id = orders.user_id AND newer.cart_etag = orders.cart_etag
            AND newer.order_id > orders.order_id AND newer.{_LIVE}
    )
"""  # noqa: S608 - constants


def upgrade() -> None:
    op.add_column("orders", sa.Column("owner", sa.String(32), nullable=False, server_default=""))
    op.create_index("ix_orders_created_at", "orders", ["created_at", "order_id"])
    op.drop_index("ix_orders_fingerprint", "orders")
    op.drop_index("ix_orders_active", "orders")
    op.execute(f"CREATE INDEX ix_orders_active ON orders (state, lease_until) WHERE {_ACTIVE}")
    # Without this index, the update below would compare each order with all other orders of its user.
    op.create_index("ix_orders_cart", "orders", ["user_id", "cart_etag"])
    op.execute(_SEPARATE_ORDERS_OF_ONE_CART)
    op.drop_index("ix_orders_cart", "orders")
    live_cart = f"cart_etag <> '' AND {_LIVE}"
    op.execute(f"CREATE UNIQUE INDEX ix_orders_live_cart ON orders (user_id, cart_etag) WHERE {live_cart}")
