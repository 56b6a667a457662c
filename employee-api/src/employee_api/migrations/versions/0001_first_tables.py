"""Creates the tables for users, tasks, comments, activities and sessions."""

import sqlalchemy as sa
from alembic import op

revision: str = "0001"
down_revision: str | None = None


def upgrade() -> None:
    texts = _texts("name", "email", "email_key", "password_hash", "role", "color", "avatar", "dept")
    unique = sa.UniqueConstraint("email_key", name="uq_users_email_key")
    _create("users", _id(), *texts, _timestamp("created_at"), unique)
    op.create_index("ix_users_created_at_id", "users", ["created_at", "id"])
    _create_tasks_and_comments()
    _create_activities_and_sessions()


def _create(table: str, key: sa.Column[object], *columns: sa.schema.SchemaItem) -> None:
    op.create_table(table, key, *columns, sa.PrimaryKeyConstraint(key.name, name=f"pk_{table}"))


def _id() -> sa.Column[object]:
    return sa.Column("id", sa.Uuid(), nullable=False)


def _texts(*names: str) -> list[sa.Column[object]]:
    return [sa.Column(name, sa.Text(), nullable=False) for name in names]


def _timestamp(name: str, *, index: bool = False) -> sa.Column[object]:
    return sa.Column(name, sa.DateTime(timezone=True), nullable=False, index=index)


def _user(table: str, column: str) -> sa.Column[object]:
    """Return a reference to a user. If the user is deleted, the row remains."""
    user = sa.ForeignKey("users.id", name=f"fk_{table}_{column}_users", ondelete="SET NULL")
    return sa.Column(column, sa.Uuid(), user, nullable=True, index=True)


def _create_tasks_and_comments() -> None:
    _create(
        "tasks",
        _id(),
        *_texts("title", "description", "status", "priority"),
        _user("tasks", "assignee_id"),
        _user("tasks", "reporter_id"),
        sa.Column("due_date", sa.Date(), nullable=True),
        _timestamp("created_at"),
        _timestamp("updated_at"),
    )
    op.create_index("ix_tasks_created_at_id", "tasks", ["created_at", "id"])
    task = sa.ForeignKey("tasks.id", name="fk_comments_task_id_tasks", ondelete="CASCADE")
    _create(
        "comments",
        _id(),
        sa.Column("task_id", sa.Uuid(), task, nullable=False),
        _user("comments", "author_id"),
        *_texts("body"),
        _timestamp("created_at"),
    )
    op.create_index("ix_comments_task_id_created_at_id", "comments", ["task_id", "created_at", "id"])


def _create_activities_and_sessions() -> None:
    _create(
        "activities",
        _id(),
        _user("activities", "actor_id"),
        *_texts("action", "subject_type"),
        sa.Column("subject_id", sa.Uuid(), nullable=False),
        *_texts("subject_name"),
        sa.Column("changes", sa.JSON(), nullable=False),
        _timestamp("created_at"),
    )
    op.create_index("ix_activities_created_at_id", "activities", ["created_at", "id"])
    user = sa.ForeignKey("users.id", name="fk_sessions_user_id_users", ondelete="CASCADE")
    _create(
        "sessions",
        sa.Column("token_hash", sa.LargeBinary(), nullable=False),
        sa.Column("user_id", sa.Uuid(), user, nullable=False, index=True),
        _timestamp("created_at"),
        _timestamp("last_seen_at"),
        _timestamp("expires_at", index=True),
    )
