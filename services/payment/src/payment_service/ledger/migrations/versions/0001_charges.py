"""Creates the ledger, with one row per key: a charge, a decline or a fence."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
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
        sa.Column("last_four", sa.String(4)),
        sa.Column("reason", sa.String(64)),
        sa.Column("recorded_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
        sa.Column("voided_at", sa.DateTime(timezone=True)),
        sa.CheckConstraint("state IN ('CHARGED', 'DECLINED', 'FENCED', 'VOIDED')", name="ck_charges_state"),
        sa.CheckConstraint("state = 'FENCED' OR card_hmac IS NOT NULL", name="ck_charges_payment"),
    )
