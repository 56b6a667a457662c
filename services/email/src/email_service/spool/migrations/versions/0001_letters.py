"""Creates the spool, with one row per accepted message."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "letters",
        sa.Column("letter_id", sa.String(128), primary_key=True),
        sa.Column("state", sa.String(16), nullable=False),
        # Recipient and message are deleted once the message is sent.
        sa.Column("recipient", sa.String(254), nullable=False),
        sa.Column("message", sa.LargeBinary),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("deferrals", sa.Integer, nullable=False),
        sa.Column("reason", sa.String(64), nullable=False),
        # Times are in seconds since 1970. `due_at` is when to send a QUEUED message, or give up on a SENDING one.
        sa.Column("due_at", sa.Double, nullable=False),
        sa.Column("accepted_at", sa.Double, nullable=False),
        sa.Column("changed_at", sa.Double, nullable=False),
        sa.CheckConstraint("state IN ('QUEUED', 'SENDING', 'SENT', 'IN_DOUBT', 'REFUSED')", name="ck_letters_state"),
        sa.CheckConstraint("(state = 'SENT') = (message IS NULL)", name="ck_letters_message"),
    )
    for name, column, condition in (
        ("ix_letters_queued", "due_at", "state = 'QUEUED'"),
        ("ix_letters_sending", "due_at", "state = 'SENDING'"),
        ("ix_letters_unsent", "state, changed_at", "state <> 'SENT'"),
    ):
        op.execute(f"CREATE INDEX {name} ON letters ({column}) WHERE {condition}")
    op.create_index("ix_letters_changed_at", "letters", ["changed_at"])
