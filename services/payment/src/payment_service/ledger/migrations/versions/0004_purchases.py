"""Adds the caller's id for the purchase that a charge pays for, and allows only one captured charge per purchase."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

_CAPTURED = sa.text("state = 'CHARGED' AND purchase_id <> ''")


def upgrade() -> None:
    op.add_column("charges", sa.Column("purchase_id", sa.String(64)))
    op.create_index(
        "ix_charges_purchase",
        "charges",
        ["purchase_id"],
        unique=True,
        sqlite_where=_CAPTURED,
        postgresql_where=_CAPTURED,
    )
