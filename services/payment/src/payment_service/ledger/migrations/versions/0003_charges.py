"""Create the ledger: one row per key, which holds a charge, a decline or a fence.

This migration replaces 0001 to 0003 and keeps the number 0003, so existing databases treat it as already applied.
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "charges",
        sa.Column("charge_key", sa.String(255), primary_key=True),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("transaction_id", sa.String(36), nullable=False, unique=True),
        sa.Column("currency_code", sa.String(3)),
        sa.Column("units", sa.BigInteger),
        sa.Column("nanos", sa.Integer),
        sa.Column("card_hmac", sa.LargeBinary),
        sa.Column("brand", sa.String(16)),
        sa.Column("reason", sa.String(64)),
        sa.Column("recorded_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
        sa.Column("voided_at", sa.DateTime(timezone=True)),
        sa.Column("hmac_key_id", sa.String(8)),
        sa.Column("request_fingerprint", sa.String(64)),
        sa.CheckConstraint("state IN ('CHARGED', 'DECLINED', 'FENCED', 'VOIDED')", name="ck_charges_state"),
        sa.CheckConstraint("state = 'FENCED' OR card_hmac IS NOT NULL", name="ck_charges_payment"),
    )
    op.create_index("ix_charges_recorded_at", "charges", ["recorded_at", "charge_key"])
