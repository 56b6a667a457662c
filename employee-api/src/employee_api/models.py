"""Database tables for SQLite and PostgreSQL. Timestamps are in UTC with microsecond precision; ids are UUIDs."""

import uuid
from datetime import UTC, date, datetime
from typing import Any

from sqlalchemy import JSON, DateTime, Dialect, Index, Text, TypeDecorator, text, true
from sqlmodel import Field, SQLModel
from typing_extensions import override

# Every constraint gets a name, so that migrations can drop it on both databases.
SQLModel.metadata.naming_convention = {
    "ix": "ix_%(column_0_N_label)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}


class UtcDateTime(TypeDecorator[datetime]):
    """A UTC timestamp. SQLite stores no time zone, so reading adds UTC. Storing a naive datetime raises ValueError."""

    impl = DateTime(timezone=True)
    cache_ok = True

    @override
    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is not None and value.tzinfo is None:
            raise ValueError("a timestamp needs a time zone")
        return None if value is None else value.astimezone(UTC)

    @override
    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


_TEXT: Any = Field(sa_type=Text)
_TIMESTAMP: Any = Field(sa_type=UtcDateTime)
_INDEXED_TIMESTAMP: Any = Field(sa_type=UtcDateTime, index=True)
_OPTIONAL_TIMESTAMP: Any = Field(default=None, sa_type=UtcDateTime)
# The column has a server default, because replicas of the previous release don't set it when they insert rows.
_ADDED_TEXT: Any = Field(default="", sa_type=Text, sa_column_kwargs={"server_default": text("''")})
# The database clears the column when the user is deleted.
_USER_REFERENCE: Any = Field(default=None, foreign_key="users.id", ondelete="SET NULL", index=True)
# The database deletes the row when the user is deleted.
_OWNER: Any = Field(foreign_key="users.id", ondelete="CASCADE", index=True)


class Entity(SQLModel):
    id: uuid.UUID = Field(primary_key=True)
    created_at: datetime = _TIMESTAMP


class User(Entity, table=True):
    """An employee. Uniqueness and login use `email_key`; `email` is stored as entered.

    A user who registered without an invitation is not `approved` until a management user gives them a role.
    """

    __tablename__ = "users"
    __table_args__ = (Index("ix_users_created_at_id", "created_at", "id"),)

    name: str = _TEXT
    email: str = _TEXT
    email_key: str = Field(sa_type=Text, unique=True)
    password_hash: str = _TEXT
    role: str = _TEXT
    color: str = _TEXT
    avatar: str = _TEXT
    dept: str = _TEXT
    approved: bool = Field(default=True, sa_column_kwargs={"server_default": true()})
    deactivated_at: datetime | None = _OPTIONAL_TIMESTAMP


class Task(Entity, table=True):
    __tablename__ = "tasks"
    __table_args__ = (Index("ix_tasks_created_at_id", "created_at", "id"),)

    title: str = _TEXT
    description: str = _TEXT
    status: str = _TEXT
    priority: str = _TEXT
    assignee_id: uuid.UUID | None = _USER_REFERENCE
    reporter_id: uuid.UUID | None = _USER_REFERENCE
    due_date: date | None = None
    updated_at: datetime = _TIMESTAMP


class Comment(Entity, table=True):
    """A comment on a task. It is deleted with the task, but not with its author."""

    __tablename__ = "comments"
    __table_args__ = (Index("ix_comments_task_id_created_at_id", "task_id", "created_at", "id"),)

    task_id: uuid.UUID = Field(foreign_key="tasks.id", ondelete="CASCADE")
    author_id: uuid.UUID | None = _USER_REFERENCE
    body: str = _TEXT
    edited_at: datetime | None = _OPTIONAL_TIMESTAMP


class Activity(Entity, table=True):
    """A change to a user or task. The subject's id and name are copies, because the activity outlives the subject."""

    __tablename__ = "activities"
    __table_args__ = (
        Index("ix_activities_created_at_id", "created_at", "id"),
        Index("ix_activities_subject_id_created_at_id", "subject_id", "created_at", "id"),
    )

    actor_id: uuid.UUID | None = _USER_REFERENCE
    action: str = _TEXT
    subject_type: str = _TEXT
    subject_id: uuid.UUID
    subject_name: str = _TEXT
    changes: dict[str, Any] = Field(sa_type=JSON)


class Session(SQLModel, table=True):
    """A login session. Only a hash of its token is stored, so read access to this table doesn't let anyone log in."""

    __tablename__ = "sessions"

    token_hash: bytes = Field(primary_key=True)
    user_id: uuid.UUID = _OWNER
    created_at: datetime = _TIMESTAMP
    last_seen_at: datetime = _TIMESTAMP
    expires_at: datetime = _INDEXED_TIMESTAMP
    address: str = _ADDED_TEXT
    user_agent: str = _ADDED_TEXT


class ApiToken(Entity, table=True):
    """A token that lets a program act for a user. `scopes` are separated by spaces."""

    __tablename__ = "api_tokens"

    token_hash: bytes = Field(unique=True)
    user_id: uuid.UUID = _OWNER
    name: str = _TEXT
    scopes: str = _TEXT
    last_used_at: datetime | None = _OPTIONAL_TIMESTAMP
    expires_at: datetime | None = _OPTIONAL_TIMESTAMP


class SingleUseLink(Entity, table=True):
    """An invitation to register with a role, or permission to set a user's password."""

    __tablename__ = "single_use_links"

    token_hash: bytes = Field(unique=True)
    purpose: str = _TEXT
    role: str = _ADDED_TEXT
    dept: str = _ADDED_TEXT
    user_id: uuid.UUID | None = Field(default=None, foreign_key="users.id", ondelete="CASCADE", index=True)
    creator_id: uuid.UUID | None = _USER_REFERENCE
    expires_at: datetime = _INDEXED_TIMESTAMP
    used_at: datetime | None = _OPTIONAL_TIMESTAMP


class SignIn(Entity, table=True):
    __tablename__ = "sign_ins"
    __table_args__ = (Index("ix_sign_ins_created_at_id", "created_at", "id"),)

    user_id: uuid.UUID = _OWNER
    outcome: str = _TEXT
    address: str = _TEXT
    user_agent: str = _TEXT


class Device(SQLModel, table=True):
    """A browser or program from which a user has signed in before. Its token alone grants no access."""

    __tablename__ = "devices"

    token_hash: bytes = Field(primary_key=True)
    user_id: uuid.UUID = _OWNER
    created_at: datetime = _TIMESTAMP
    last_used_at: datetime = _INDEXED_TIMESTAMP


class FailureCount(SQLModel, table=True):
    """Counts failures, such as failed logins to an account, in a window that begins with the first failure."""

    __tablename__ = "failure_counts"

    key_hash: bytes = Field(primary_key=True)
    failures: int
    begun_at: datetime = _INDEXED_TIMESTAMP
    last_at: datetime = _TIMESTAMP


class StoredResponse(SQLModel, table=True):
    """The response to a request with an Idempotency-Key, returned again if the request is repeated."""

    __tablename__ = "stored_responses"

    key_hash: bytes = Field(primary_key=True)
    fingerprint: bytes
    status: int
    headers: dict[str, str] = Field(sa_type=JSON)
    body: bytes
    created_at: datetime = _INDEXED_TIMESTAMP
