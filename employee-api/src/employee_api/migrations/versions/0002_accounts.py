"""Adds account states, API tokens, single-use links, sign-ins, devices, failure counts and stored responses.

Replicas of the previous release keep serving meanwhile, so columns that they don't know are nullable or have a default.
"""

import sqlalchemy as sa
from alembic import op

revision: str = "0002"
down_revision: str | None = "0001"


def upgrade() -> None:
    with op.batch_alter_table("users") as users:
        users.add_column(sa.Column("approved", sa.Boolean(), nullable=False, server_default=sa.true()))
        users.add_column(_timestamp("deactivated_at", nullable=True))
    with op.batch_alter_table("comments") as comments:
        comments.add_column(_timestamp("edited_at", nullable=True))
    with op.batch_alter_table("sessions") as sessions:
        sessions.add_column(_added_text("address"))
        sessions.add_column(_added_text("user_agent"))
    _create_secrets()
    _create_records()


def _create(table: str, key: sa.Column[object], *columns: sa.schema.SchemaItem) -> None:
    op.create_table(table, key, *columns, sa.PrimaryKeyConstraint(key.name, name=f"pk_{table}"))


def _id() -> sa.Column[object]:
    return sa.Column("id", sa.Uuid(), nullable=False)


def _timestamp(name: str, *, nullable: bool = False, index: bool = False) -> sa.Column[object]:
    return sa.Column(name, sa.DateTime(timezone=True), nullable=nullable, index=index)


def _texts(*names: str) -> list[sa.Column[object]]:
    return [sa.Column(name, sa.Text(), nullable=False) for name in names]


def _added_text(name: str) -> sa.Column[object]:
    return sa.Column(name, sa.Text(), nullable=False, server_default=sa.text("''"))


def _hash(name: str) -> sa.Column[object]:
    return sa.Column(name, sa.LargeBinary(), nullable=False)


def _user(
    table: str, column: str = "user_id", ondelete: str = "CASCADE", *, nullable: bool = False
) -> sa.Column[object]:
    user = sa.ForeignKey("users.id", name=f"fk_{table}_{column}_users", ondelete=ondelete)
    return sa.Column(column, sa.Uuid(), user, nullable=nullable, index=True)


def _create_secrets() -> None:
    _create(
        "api_tokens",
        _id(),
        _hash("token_hash"),
        _user("api_tokens"),
        *_texts("name", "scopes"),
        _timestamp("created_at"),
        _timestamp("last_used_at", nullable=True),
        _timestamp("expires_at", nullable=True),
        sa.UniqueConstraint("token_hash", name="uq_api_tokens_token_hash"),
    )
    _create(
        "single_use_links",
        _id(),
        _hash("token_hash"),
        *_texts("purpose"),
        _added_text("role"),
        _user("single_use_links", nullable=True),
        _user("single_use_links", "creator_id", "SET NULL", nullable=True),
        _timestamp("created_at"),
        _timestamp("expires_at", index=True),
        _timestamp("used_at", nullable=True),
        sa.UniqueConstraint("token_hash", name="uq_single_use_links_token_hash"),
    )


def _create_records() -> None:
    texts, created_at = _texts("outcome", "address", "user_agent"), _timestamp("created_at")
    _create("sign_ins", _id(), _user("sign_ins"), *texts, created_at)
    op.create_index("ix_sign_ins_created_at_id", "sign_ins", ["created_at", "id"])
    times = _timestamp("created_at"), _timestamp("last_used_at", index=True)
    _create("devices", _hash("token_hash"), _user("devices"), *times)
    failures, begun_at = sa.Column("failures", sa.Integer(), nullable=False), _timestamp("begun_at", index=True)
    _create("failure_counts", _hash("key_hash"), failures, begun_at, _timestamp("last_at"))
    _create(
        "stored_responses",
        _hash("key_hash"),
        _hash("fingerprint"),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("headers", sa.JSON(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        _timestamp("created_at", index=True),
    )
