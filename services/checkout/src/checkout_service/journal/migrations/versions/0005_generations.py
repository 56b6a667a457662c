"""Orders hold the generation of their cart, no longer one etag: the first half of the etags that our carts have."""

from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    # Of finished orders no item is in a cart any more.
    op.execute(
        "UPDATE orders SET cart_etag = substr(cart_etag, 1, 16) "
        "WHERE state IN ('CHARGING', 'VOIDING', 'SHIPPED', 'NEEDS_REFUND', 'NEEDS_REVIEW') AND length(cart_etag) = 32"
    )
