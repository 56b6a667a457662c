"""Adds account states, API tokens, single-use links, sign-ins, devices, failure counts and stored responses.

Replicas of the previous release may still insert rows, so columns added to old tables are nullable or have a default.
"""

import sqlalchemy as sa
from alembic import op

from employee_api.migrations.columns import create_table, row_id, texts, timestamp, user

revision: str = "0002"
down_revision: str | None = "0001"


def upgrade() -> None:
    with op.batch_alter_table("users") as users:
        users.add_column(sa.Column("approved", sa.Boolean(), nullable=False, server_default=sa.true()))
        users.add_column(timestamp("deactivated_at", nullable=True))
    with op.batch_alter_table("comments") as comments:
        comments.add_column(timestamp("edited_at", nullable=True))
    with op.batch_alter_table("sessions") as sessions:
        sessions.add_column(_added_text("address"))
        sessions.add_column(_added_text("user_agent"))
    _create_secrets()
    _create_records()


def _added_text(name: str) -> sa.Column[object]:
    return sa.Column(name, sa.Text(), nullable=False, server_default=sa.text("''"))


def _hash(name: str) -> sa.Column[object]:
    return sa.Column(name, sa.LargeBinary(), nullable=False)


def _create_secrets() -> None:
    create_table(
        "api_tokens",
        row_id(),
        _hash("token_hash"),
        user("api_tokens", "user_id", "CASCADE", nullable=False),
        *texts("name", "scopes"),
        timestamp("created_at"),
        timestamp("last_used_at", nullable=True),
        timestamp("expires_at", nullable=True),
        sa.UniqueConstraint("token_hash", name="uq_api_tokens_token_hash"),
    )
    create_table(
        "single_use_links",
        row_id(),
        _hash("token_hash"),
        *texts("purpose"),
        _added_text("role"),
        user("single_use_links", "user_id", "CASCADE", nullable=True),
        user("single_use_links", "creator_id", "SET NULL", nullable=True),
        timestamp("created_at"),
        timestamp("expires_at", index=True),
        timestamp("used_at", nullable=True),
        sa.UniqueConstraint("token_hash", name="uq_single_use_links_token_hash"),
    )


def _create_records() -> None:
    columns, created_at = texts("outcome", "address", "user_agent"), timestamp("created_at")
    create_table("sign_ins", row_id(), user("sign_ins", "user_id", "CASCADE", nullable=False), *columns, created_at)
    op.create_index("ix_sign_ins_created_at_id", "sign_ins", ["created_at", "id"])
    times = timestamp("created_at"), timestamp("last_used_at", index=True)
    create_table("devices", _hash("token_hash"), user("devices", "user_id", "CASCADE", nullable=False), *times)
    failures, begun_at = sa.Column("failures", sa.Integer(), nullable=False), timestamp("begun_at", index=True)
    create_table("failure_counts", _hash("key_hash"), failures, begun_at, timestamp("last_at"))
    create_table(
        "stored_responses",
        _hash("key_hash"),
        _hash("fingerprint"),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("headers", sa.JSON(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        timestamp("created_at", index=True),
    )
