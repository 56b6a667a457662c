"""Creates the tables for users, tasks, comments, activities and sessions."""

import sqlalchemy as sa
from alembic import op

from employee_api.migrations.columns import create_table, row_id, texts, timestamp, user

revision: str = "0001"
down_revision: str | None = None


def upgrade() -> None:
    columns = texts("name", "email", "email_key", "password_hash", "role", "color", "avatar", "dept")
    unique = sa.UniqueConstraint("email_key", name="uq_users_email_key")
    create_table("users", row_id(), *columns, timestamp("created_at"), unique)
    op.create_index("ix_users_created_at_id", "users", ["created_at", "id"])
    _create_tasks_and_comments()
    _create_activities_and_sessions()


def _create_tasks_and_comments() -> None:
    create_table(
        "tasks",
        row_id(),
        *texts("title", "description", "status", "priority"),
        user("tasks", "assignee_id", "SET NULL", nullable=True),
        user("tasks", "reporter_id", "SET NULL", nullable=True),
        sa.Column("due_date", sa.Date(), nullable=True),
        timestamp("created_at"),
        timestamp("updated_at"),
    )
    op.create_index("ix_tasks_created_at_id", "tasks", ["created_at", "id"])
    task = sa.ForeignKey("tasks.id", name="fk_comments_task_id_tasks", ondelete="CASCADE")
    create_table(
        "comments",
        row_id(),
        sa.Column("task_id", sa.Uuid(), task, nullable=False),
        user("comments", "author_id", "SET NULL", nullable=True),
        *texts("body"),
        timestamp("created_at"),
    )
    op.create_index("ix_comments_task_id_created_at_id", "comments", ["task_id", "created_at", "id"])


def _create_activities_and_sessions() -> None:
    create_table(
        "activities",
        row_id(),
        user("activities", "actor_id", "SET NULL", nullable=True),
        *texts("action", "subject_type"),
        sa.Column("subject_id", sa.Uuid(), nullable=False),
        *texts("subject_name"),
        sa.Column("changes", sa.JSON(), nullable=False),
        timestamp("created_at"),
    )
    op.create_index("ix_activities_created_at_id", "activities", ["created_at", "id"])
    create_table(
        "sessions",
        sa.Column("token_hash", sa.LargeBinary(), nullable=False),
        user("sessions", "user_id", "CASCADE", nullable=False),
        timestamp("created_at"),
        timestamp("last_seen_at"),
        timestamp("expires_at", index=True),
    )
