"""The tables, the same on SQLite and PostgreSQL. Timestamps are UTC with microseconds; ids are UUIDs."""

import uuid
from datetime import UTC, date, datetime
from typing import Any

from sqlalchemy import JSON, DateTime, Dialect, Index, Text, TypeDecorator, text, true
from sqlmodel import Field, SQLModel
from typing_extensions import override

# Named constraints can be dropped by migrations on both databases.
SQLModel.metadata.naming_convention = {
    "ix": "ix_%(column_0_N_label)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}


class UtcDateTime(TypeDecorator[datetime]):
    """A timestamp in UTC. SQLite stores no time zone, so it is added when a value is read.

    Binding a value without a time zone raises ValueError.
    """

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


def _timestamp() -> Any:
    return Field(sa_type=UtcDateTime)


def _text() -> Any:
    return Field(sa_type=Text)


def _optional_timestamp() -> Any:
    return Field(default=None, sa_type=UtcDateTime)


def _added_text() -> Any:
    # The default of the database is for replicas of the previous release, which do not know the column.
    return Field(default="", sa_type=Text, sa_column_kwargs={"server_default": text("''")})


def _user_reference() -> Any:
    # The database clears the column when the user is deleted.
    return Field(default=None, foreign_key="users.id", ondelete="SET NULL", index=True)


def _owner() -> Any:
    # The row is deleted with the user.
    return Field(foreign_key="users.id", ondelete="CASCADE", index=True)


class User(SQLModel, table=True):
    """An employee. Uniqueness and login use `email_key`; `email` is stored as it was entered.

    A user who registered openly is not `approved` until a management role gives them a role. A deactivated one can't
    sign in.
    """

    __tablename__ = "users"
    __table_args__ = (Index("ix_users_created_at_id", "created_at", "id"),)

    id: uuid.UUID = Field(primary_key=True)
    name: str = _text()
    email: str = _text()
    email_key: str = Field(sa_type=Text, unique=True)
    password_hash: str = _text()
    role: str = _text()
    color: str = _text()
    avatar: str = _text()
    dept: str = _text()
    created_at: datetime = _timestamp()
    approved: bool = Field(default=True, sa_column_kwargs={"server_default": true()})
    deactivated_at: datetime | None = _optional_timestamp()


class Task(SQLModel, table=True):
    __tablename__ = "tasks"
    __table_args__ = (Index("ix_tasks_created_at_id", "created_at", "id"),)

    id: uuid.UUID = Field(primary_key=True)
    title: str = _text()
    description: str = _text()
    status: str = _text()
    priority: str = _text()
    assignee_id: uuid.UUID | None = _user_reference()
    reporter_id: uuid.UUID | None = _user_reference()
    due_date: date | None = None
    created_at: datetime = _timestamp()
    updated_at: datetime = _timestamp()


class Comment(SQLModel, table=True):
    """A comment on a task: deleted with the task, but not with its author."""

    __tablename__ = "comments"
    __table_args__ = (Index("ix_comments_task_id_created_at_id", "task_id", "created_at", "id"),)

    id: uuid.UUID = Field(primary_key=True)
    task_id: uuid.UUID = Field(foreign_key="tasks.id", ondelete="CASCADE")
    author_id: uuid.UUID | None = _user_reference()
    body: str = _text()
    created_at: datetime = _timestamp()
    edited_at: datetime | None = _optional_timestamp()


class Activity(SQLModel, table=True):
    """A change to a user or task. The subject's id and name are copies, because an activity outlives its subject."""

    __tablename__ = "activities"
    __table_args__ = (
        Index("ix_activities_created_at_id", "created_at", "id"),
        Index("ix_activities_subject_id_created_at_id", "subject_id", "created_at", "id"),
    )

    id: uuid.UUID = Field(primary_key=True)
    actor_id: uuid.UUID | None = _user_reference()
    action: str = _text()
    subject_type: str = _text()
    subject_id: uuid.UUID
    subject_name: str = _text()
    changes: dict[str, Any] = Field(sa_type=JSON)
    created_at: datetime = _timestamp()


class Session(SQLModel, table=True):
    """A login session. Only a hash of its token is stored, so reading this table gives no access."""

    __tablename__ = "sessions"

    token_hash: bytes = Field(primary_key=True)
    user_id: uuid.UUID = _owner()
    created_at: datetime = _timestamp()
    last_seen_at: datetime = _timestamp()
    expires_at: datetime = Field(sa_type=UtcDateTime, index=True)
    address: str = _added_text()
    user_agent: str = _added_text()


class ApiToken(SQLModel, table=True):
    """A token with which a program acts for a user, within its scopes, which are separated by spaces."""

    __tablename__ = "api_tokens"

    id: uuid.UUID = Field(primary_key=True)
    token_hash: bytes = Field(unique=True)
    user_id: uuid.UUID = _owner()
    name: str = _text()
    scopes: str = _text()
    created_at: datetime = _timestamp()
    last_used_at: datetime | None = _optional_timestamp()
    expires_at: datetime | None = _optional_timestamp()


class SingleUseLink(SQLModel, table=True):
    """An invitation to register with a role, or permission to set the password of a user."""

    __tablename__ = "single_use_links"

    id: uuid.UUID = Field(primary_key=True)
    token_hash: bytes = Field(unique=True)
    purpose: str = _text()
    role: str = _added_text()
    dept: str = _added_text()
    user_id: uuid.UUID | None = Field(default=None, foreign_key="users.id", ondelete="CASCADE", index=True)
    creator_id: uuid.UUID | None = _user_reference()
    created_at: datetime = _timestamp()
    expires_at: datetime = Field(sa_type=UtcDateTime, index=True)
    used_at: datetime | None = _optional_timestamp()


class SignIn(SQLModel, table=True):
    """An attempt to sign in to an account, with its outcome."""

    __tablename__ = "sign_ins"
    __table_args__ = (Index("ix_sign_ins_created_at_id", "created_at", "id"),)

    id: uuid.UUID = Field(primary_key=True)
    user_id: uuid.UUID = _owner()
    outcome: str = _text()
    address: str = _text()
    user_agent: str = _text()
    created_at: datetime = _timestamp()


class Device(SQLModel, table=True):
    """A browser or program from which a user has signed in before."""

    __tablename__ = "devices"

    token_hash: bytes = Field(primary_key=True)
    user_id: uuid.UUID = _owner()
    created_at: datetime = _timestamp()
    last_used_at: datetime = Field(sa_type=UtcDateTime, index=True)


class FailureCount(SQLModel, table=True):
    """How often something has failed in the window that began with the first failure, such as logins to an account.

    `key_hash` is the SHA-256 of what is counted.
    """

    __tablename__ = "failure_counts"

    key_hash: bytes = Field(primary_key=True)
    failures: int
    begun_at: datetime = Field(sa_type=UtcDateTime, index=True)
    last_at: datetime = _timestamp()


class StoredResponse(SQLModel, table=True):
    """The response to a request with an Idempotency-Key, for its repetitions.

    `key_hash` is the SHA-256 of the caller, the operation and the key; `fingerprint` identifies the input.
    """

    __tablename__ = "stored_responses"

    key_hash: bytes = Field(primary_key=True)
    fingerprint: bytes
    status: int
    headers: dict[str, str] = Field(sa_type=JSON)
    body: bytes
    created_at: datetime = Field(sa_type=UtcDateTime, index=True)
