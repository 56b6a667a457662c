"""Users, tasks, comments, activities and sessions."""

import sqlalchemy as sa
from alembic import op

revision: str = "0001"
down_revision: str | None = None


def upgrade() -> None:
    _create_users()
    _create_tasks()
    _create_comments()
    _create_activities()
    _create_sessions()


def downgrade() -> None:
    for table in ("sessions", "activities", "comments", "tasks", "users"):
        op.drop_table(table)


def _timestamp(name: str) -> sa.Column[object]:
    return sa.Column(name, sa.DateTime(timezone=True), nullable=False)


def _text(name: str) -> sa.Column[object]:
    return sa.Column(name, sa.Text(), nullable=False)


def _id() -> sa.Column[object]:
    return sa.Column("id", sa.Uuid(), nullable=False)


def _user_reference(table: str, column: str, ondelete: str = "SET NULL") -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint([column], ["users.id"], name=f"fk_{table}_{column}_users", ondelete=ondelete)


def _create_users() -> None:
    columns = ("name", "email", "email_key", "password_hash", "role", "color", "avatar", "dept")
    op.create_table(
        "users",
        _id(),
        *(_text(name) for name in columns),
        _timestamp("created_at"),
        sa.PrimaryKeyConstraint("id", name="pk_users"),
        sa.UniqueConstraint("email_key", name="uq_users_email_key"),
    )
    op.create_index("ix_users_created_at_id", "users", ["created_at", "id"])


def _create_tasks() -> None:
    op.create_table(
        "tasks",
        _id(),
        *(_text(name) for name in ("title", "description", "status", "priority")),
        sa.Column("assignee_id", sa.Uuid(), nullable=True),
        sa.Column("reporter_id", sa.Uuid(), nullable=True),
        sa.Column("due_date", sa.Date(), nullable=True),
        _timestamp("created_at"),
        _timestamp("updated_at"),
        sa.PrimaryKeyConstraint("id", name="pk_tasks"),
        _user_reference("tasks", "assignee_id"),
        _user_reference("tasks", "reporter_id"),
    )
    op.create_index("ix_tasks_created_at_id", "tasks", ["created_at", "id"])
    op.create_index("ix_tasks_assignee_id", "tasks", ["assignee_id"])
    op.create_index("ix_tasks_reporter_id", "tasks", ["reporter_id"])


def _create_comments() -> None:
    op.create_table(
        "comments",
        _id(),
        sa.Column("task_id", sa.Uuid(), nullable=False),
        sa.Column("author_id", sa.Uuid(), nullable=True),
        _text("body"),
        _timestamp("created_at"),
        sa.PrimaryKeyConstraint("id", name="pk_comments"),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"], name="fk_comments_task_id_tasks", ondelete="CASCADE"),
        _user_reference("comments", "author_id"),
    )
    op.create_index("ix_comments_task_id_created_at_id", "comments", ["task_id", "created_at", "id"])
    op.create_index("ix_comments_author_id", "comments", ["author_id"])


def _create_activities() -> None:
    op.create_table(
        "activities",
        _id(),
        sa.Column("actor_id", sa.Uuid(), nullable=True),
        *(_text(name) for name in ("action", "subject_type")),
        sa.Column("subject_id", sa.Uuid(), nullable=False),
        _text("subject_name"),
        sa.Column("changes", sa.JSON(), nullable=False),
        _timestamp("created_at"),
        sa.PrimaryKeyConstraint("id", name="pk_activities"),
        _user_reference("activities", "actor_id"),
    )
    op.create_index("ix_activities_created_at_id", "activities", ["created_at", "id"])
    op.create_index("ix_activities_actor_id", "activities", ["actor_id"])


def _create_sessions() -> None:
    op.create_table(
        "sessions",
        sa.Column("token_hash", sa.LargeBinary(), nullable=False),
        sa.Column("user_id", sa.Uuid(), nullable=False),
        _timestamp("created_at"),
        _timestamp("last_seen_at"),
        _timestamp("expires_at"),
        sa.PrimaryKeyConstraint("token_hash", name="pk_sessions"),
        _user_reference("sessions", "user_id", ondelete="CASCADE"),
    )
    op.create_index("ix_sessions_user_id", "sessions", ["user_id"])
    op.create_index("ix_sessions_expires_at", "sessions", ["expires_at"])
