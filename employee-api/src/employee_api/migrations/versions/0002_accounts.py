"""Approval and deactivation of users, API tokens, single-use links, sign-ins, devices, limits, stored responses.

Replicas of the previous release go on serving meanwhile: columns that they do not know are nullable or have a default.
"""

import sqlalchemy as sa
from alembic import op

revision: str = "0002"
down_revision: str | None = "0001"

_TABLES = ("api_tokens", "single_use_links", "sign_ins", "devices", "failure_counts", "stored_responses")


def upgrade() -> None:
    with op.batch_alter_table("users") as users:
        users.add_column(sa.Column("approved", sa.Boolean(), nullable=False, server_default=sa.true()))
        users.add_column(_timestamp("deactivated_at", nullable=True))
    with op.batch_alter_table("comments") as comments:
        comments.add_column(_timestamp("edited_at", nullable=True))
    with op.batch_alter_table("sessions") as sessions:
        sessions.add_column(sa.Column("address", sa.Text(), nullable=False, server_default=sa.text("''")))
        sessions.add_column(sa.Column("user_agent", sa.Text(), nullable=False, server_default=sa.text("''")))
    _create_api_tokens()
    _create_single_use_links()
    _create_sign_ins()
    _create_devices()
    _create_failure_counts()
    _create_stored_responses()


def downgrade() -> None:
    for table in reversed(_TABLES):
        op.drop_table(table)
    with op.batch_alter_table("sessions") as sessions:
        sessions.drop_column("user_agent")
        sessions.drop_column("address")
    with op.batch_alter_table("comments") as comments:
        comments.drop_column("edited_at")
    with op.batch_alter_table("users") as users:
        users.drop_column("deactivated_at")
        users.drop_column("approved")


def _timestamp(name: str, *, nullable: bool = False) -> sa.Column[object]:
    return sa.Column(name, sa.DateTime(timezone=True), nullable=nullable)


def _text(name: str) -> sa.Column[object]:
    return sa.Column(name, sa.Text(), nullable=False)


def _hash(name: str) -> sa.Column[object]:
    return sa.Column(name, sa.LargeBinary(), nullable=False)


def _owner(table: str) -> tuple[sa.Column[object], sa.ForeignKeyConstraint]:
    """Return a column `user_id` whose rows are deleted with the user."""
    constraint = sa.ForeignKeyConstraint(
        ["user_id"], ["users.id"], name=f"fk_{table}_user_id_users", ondelete="CASCADE"
    )
    return sa.Column("user_id", sa.Uuid(), nullable=False), constraint


def _create_api_tokens() -> None:
    op.create_table(
        "api_tokens",
        sa.Column("id", sa.Uuid(), nullable=False),
        _hash("token_hash"),
        *_owner("api_tokens"),
        _text("name"),
        _text("scopes"),
        _timestamp("created_at"),
        _timestamp("last_used_at", nullable=True),
        _timestamp("expires_at", nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_api_tokens"),
        sa.UniqueConstraint("token_hash", name="uq_api_tokens_token_hash"),
    )
    op.create_index("ix_api_tokens_user_id", "api_tokens", ["user_id"])


def _create_single_use_links() -> None:
    users = ["users.id"]
    op.create_table(
        "single_use_links",
        sa.Column("id", sa.Uuid(), nullable=False),
        _hash("token_hash"),
        _text("purpose"),
        sa.Column("role", sa.Text(), nullable=False, server_default=sa.text("''")),
        sa.Column("user_id", sa.Uuid(), nullable=True),
        sa.Column("creator_id", sa.Uuid(), nullable=True),
        _timestamp("created_at"),
        _timestamp("expires_at"),
        _timestamp("used_at", nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_single_use_links"),
        sa.UniqueConstraint("token_hash", name="uq_single_use_links_token_hash"),
        sa.ForeignKeyConstraint(["user_id"], users, name="fk_single_use_links_user_id_users", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["creator_id"], users, name="fk_single_use_links_creator_id_users", ondelete="SET NULL"
        ),
    )
    for column in ("user_id", "creator_id", "expires_at"):
        op.create_index(f"ix_single_use_links_{column}", "single_use_links", [column])


def _create_sign_ins() -> None:
    op.create_table(
        "sign_ins",
        sa.Column("id", sa.Uuid(), nullable=False),
        *_owner("sign_ins"),
        *(_text(name) for name in ("outcome", "address", "user_agent")),
        _timestamp("created_at"),
        sa.PrimaryKeyConstraint("id", name="pk_sign_ins"),
    )
    op.create_index("ix_sign_ins_user_id", "sign_ins", ["user_id"])
    op.create_index("ix_sign_ins_created_at_id", "sign_ins", ["created_at", "id"])


def _create_devices() -> None:
    op.create_table(
        "devices",
        _hash("token_hash"),
        *_owner("devices"),
        _timestamp("created_at"),
        _timestamp("last_used_at"),
        sa.PrimaryKeyConstraint("token_hash", name="pk_devices"),
    )
    op.create_index("ix_devices_user_id", "devices", ["user_id"])
    op.create_index("ix_devices_last_used_at", "devices", ["last_used_at"])


def _create_failure_counts() -> None:
    op.create_table(
        "failure_counts",
        _hash("key_hash"),
        sa.Column("failures", sa.Integer(), nullable=False),
        _timestamp("begun_at"),
        _timestamp("last_at"),
        sa.PrimaryKeyConstraint("key_hash", name="pk_failure_counts"),
    )
    op.create_index("ix_failure_counts_begun_at", "failure_counts", ["begun_at"])


def _create_stored_responses() -> None:
    op.create_table(
        "stored_responses",
        _hash("key_hash"),
        _hash("fingerprint"),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("headers", sa.JSON(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        _timestamp("created_at"),
        sa.PrimaryKeyConstraint("key_hash", name="pk_stored_responses"),
    )
    op.create_index("ix_stored_responses_created_at", "stored_responses", ["created_at"])
