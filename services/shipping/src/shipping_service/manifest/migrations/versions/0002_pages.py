"""Adds an index for listing shipments page by page."""

from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_index("ix_shipments_recorded_at", "shipments", ["recorded_at", "shipment_key"])
