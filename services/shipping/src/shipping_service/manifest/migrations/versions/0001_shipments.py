"""Creates the manifest, with one row per key: a shipment or a fence."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "shipments",
        sa.Column("shipment_key", sa.String(255), primary_key=True),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("tracking_id", sa.String(64), nullable=False),
        # The address and the items, as JSON.
        sa.Column("parcel", sa.Text),
        sa.Column("recorded_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
        sa.CheckConstraint("state IN ('SHIPPED', 'FENCED')", name="ck_shipments_state"),
        sa.CheckConstraint("(state = 'SHIPPED') = (parcel IS NOT NULL)", name="ck_shipments_parcel"),
        sqlite_with_rowid=False,
    )
