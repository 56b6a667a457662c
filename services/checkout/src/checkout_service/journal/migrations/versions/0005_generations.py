"""Replaces unfinished orders' cart etags with cart generations, the first 16 characters of our cart service's etags."""

from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    # Leave finished orders unchanged: none of their items are in a cart anymore.
    op.execute(
        "UPDATE orders SET cart_etag = substr(cart_etag, 1, 16) "
        "WHERE state IN ('CHARGING', 'VOIDING', 'SHIPPED', 'NEEDS_REFUND', 'NEEDS_REVIEW') AND length(cart_etag) = 32"
    )
