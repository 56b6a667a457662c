"""Migrations; rows that an earlier release has written, and that release beside this one during a rollout."""

import hashlib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from sqlmodel import SQLModel

from employee_api.models import ApiToken
from shop_kit.employee_api import Api, Clock, api_starter, on_each_database

MOMENT = datetime(2026, 3, 14, 15, 9, 26, 535897, tzinfo=UTC)
ADA, BOB, WATER, BARE = (uuid.UUID(int=number) for number in range(1, 5))
TOKEN = "a token of the earlier release"
Row = dict[str, Any]


def _user(number: int, name: str, email: str, **more: Any) -> Row:
    fields = {"id": uuid.UUID(int=number), "name": name, "email": email, "email_key": email.casefold()}
    fixed = {"password_hash": "no hash", "role": "ceo", "color": "#818cf8", "avatar": "É", "dept": ""}
    return fields | fixed | {"created_at": MOMENT} | more


def _task(task_id: uuid.UUID, title: str, **more: Any) -> Row:
    fields = {"id": task_id, "title": title, "description": "", "status": "todo", "priority": "low"}
    no_users = {"assignee_id": None, "reporter_id": None, "due_date": None}
    return fields | no_users | {"created_at": MOMENT, "updated_at": MOMENT} | more


def _activity(number: int, **more: Any) -> Row:
    fields = {"id": uuid.UUID(int=number), "actor_id": None, "action": "deleted", "subject_type": "user"}
    subject = {"subject_id": uuid.UUID(int=99), "subject_name": "Straße 🌵", "changes": {}, "created_at": MOMENT}
    return fields | subject | more


COMMENT = {"id": uuid.UUID(int=5), "task_id": WATER, "author_id": None, "body": "✓ 完了\n", "created_at": MOMENT}
SESSION = {"token_hash": hashlib.sha256(TOKEN.encode()).digest(), "user_id": ADA, "created_at": MOMENT}
SESSION |= {"last_seen_at": MOMENT, "expires_at": MOMENT + timedelta(days=7)}
ROWS: dict[str, list[Row]] = {
    "users": [
        _user(1, "Åda\u0301 O'Love; --", "Ada+Spaß@Bücher.example", dept="R&D"),
        _user(2, '"Bob"\t', "not an address", role="", password_hash=""),
        _user(11, "Eve", " Eve@x\t", dept=" "),
        _user(12, "Other Bob", "\tnot an address"),
        _user(6, "😀", '"quoted @ local"@x', role="any role at all"),
    ],
    "tasks": [
        _task(WATER, "Wässern", assignee_id=ADA, reporter_id=BOB, due_date=date(2028, 2, 29), status="review"),
        _task(BARE, "% _ \\ 水", description="\u200b\n" * 3),
    ],
    "comments": [COMMENT, COMMENT | {"id": uuid.UUID(int=7), "author_id": BOB}],
    "activities": [_activity(8), _activity(9, actor_id=ADA, changes={"name": {"before": None, "after": "é"}})],
    "sessions": [SESSION],
}


@dataclass(frozen=True)
class Old:
    """A database, and its tables as the release of revision 0001 names them, with the types of today's models."""

    engine: sa.Engine
    tables: dict[str, Any]

    def read(self, connection: sa.Connection, name: str) -> list[Row]:
        rows = connection.execute(sa.select(self.tables[name])).mappings().all()
        return sorted(map(dict, rows), key=repr)


@pytest.fixture(scope="session")
def migrations() -> Path | None:
    return None  # databases without tables


@pytest.fixture
def alembic(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Config:
    """The configuration of Alembic's command line."""
    monkeypatch.setenv("DATABASE_URL", database_url)
    return Config(Path(__file__).parents[1] / "alembic.ini")


@pytest.fixture
def old(database_url: str, alembic: Config) -> Iterator[Old]:
    """A database of revision 0001 with rows in every table."""
    command.upgrade(alembic, "0001")
    driver = "sqlite" if database_url.startswith("sqlite") else "postgresql+psycopg"
    engine = sa.create_engine(sa.make_url(database_url).set(drivername=driver))
    tables = {}
    with engine.begin() as connection:
        for name, rows in ROWS.items():
            columns, types = sa.inspect(connection).get_columns(name), SQLModel.metadata.tables[name].c
            tables[name] = sa.table(name, *(sa.column(found["name"], types[found["name"]].type) for found in columns))
            connection.execute(sa.insert(tables[name]), rows)
    yield Old(engine, tables)
    engine.dispose()


def _migrated(row: Row) -> Row:
    # Keys of e-mails have lost the white space around them, unless another user has the key without it.
    stripped, keys = row.get("email_key", "").strip(), {user["email_key"] for user in ROWS["users"]}
    return row | {"email_key": stripped} if stripped not in {"", *keys} else row


@on_each_database
async def test_migrated_rows_are_unchanged_and_served(old: Old, alembic: Config, database_url: str) -> None:
    command.upgrade(alembic, "head")
    command.check(alembic)  # that the migrations agree with the models
    with old.engine.connect() as connection:
        for name, rows in ROWS.items():
            assert old.read(connection, name) == sorted(map(_migrated, rows), key=repr)
    async with api_starter(database_url, Clock(MOMENT + timedelta(minutes=1)))(auth_mode="enforce") as api:
        api.client.headers["authorization"] = f"Bearer {TOKEN}"
        users = await api.fetch("GET /api/auth/users")
        assert {user["name"] for user in users} == {row["name"] for row in ROWS["users"]}
        [session] = await api.fetch("GET /api/auth/sessions")
        assert (session["address"], session["user_agent"]) == ("", "")
        [task] = (await api.fetch("GET /api/tasks?q=WÄSSERN"))["items"]
        assert (task["due_date"], task["assignee_id"], task["reporter_id"]) == ("2028-02-29", str(ADA), str(BOB))
        comments = (await api.fetch(f"GET /api/tasks/{WATER}/comments"))["items"]
        assert {(comment["body"], comment["edited_at"]) for comment in comments} == {(COMMENT["body"], None)}
        assert len(await api.activities()) == 2
        assert (await api.client.get("/api/export/users")).text.count("Spaß") == 1


@on_each_database
def test_the_statements_of_an_earlier_release_work_on_the_new_schema(old: Old, alembic: Config) -> None:
    command.upgrade(alembic, "head")
    new_user, new_task = _user(21, "New", "new@x"), _task(uuid.uuid4(), "New", assignee_id=BOB)
    new_comment = COMMENT | {"id": uuid.uuid4(), "task_id": new_task["id"], "author_id": BOB}
    new_session = SESSION | {"token_hash": b"other", "user_id": new_user["id"]}
    inserted = {"users": new_user, "tasks": new_task, "comments": new_comment, "sessions": new_session}
    users, tasks, sessions = (old.tables[name] for name in ("users", "tasks", "sessions"))
    with old.engine.begin() as connection:
        if old.engine.dialect.name == "sqlite":
            connection.exec_driver_sql("PRAGMA foreign_keys = ON")
        for name, row in (inserted | {"activities": _activity(10, actor_id=BOB)}).items():
            connection.execute(sa.insert(old.tables[name]).values(row))
            assert row in old.read(connection, name)
        for rows_of, changes in ((users, {"password_hash": "x"}), (tasks, {"status": "done"})):
            connection.execute(sa.update(rows_of).values(changes))
        connection.execute(sa.update(sessions).where(sessions.c.user_id == ADA).values(last_seen_at=MOMENT))
        connection.execute(sa.delete(users).where(users.c.id.in_([BOB, new_user["id"]])))
        assert [row["id"] for row in old.read(connection, "tasks") if row["assignee_id"]] == [WATER]
        assert {row["author_id"] for row in old.read(connection, "comments")} == {None}
        assert [row["user_id"] for row in old.read(connection, "sessions")] == [ADA]
        connection.execute(sa.delete(tasks).where(tasks.c.id == new_task["id"]))
        assert {row["task_id"] for row in old.read(connection, "comments")} == {WATER}


@on_each_database
async def test_tokens_of_an_earlier_release_end_after_90_days(old: Old, alembic: Config, database_url: str) -> None:
    command.upgrade(alembic, "0004")
    tokens: Any = SQLModel.metadata.tables[ApiToken.__tablename__]

    def token(number: int, end: int | None) -> Row:
        token_hash = hashlib.sha256(f"shop_{number}".encode()).digest()
        row = {"id": uuid.UUID(int=number), "token_hash": token_hash, "user_id": ADA, "name": "report"}
        expires_at = None if end is None else MOMENT + timedelta(days=end)
        return row | {"scopes": "users:read", "created_at": MOMENT, "expires_at": expires_at}

    with old.engine.begin() as connection:
        connection.execute(sa.insert(tokens), [token(number, end) for number, end in enumerate((None, 89, 90, 91))])
    command.upgrade(alembic, "head")
    with old.engine.begin() as connection:
        ends = connection.execute(sa.select(tokens.c.expires_at).order_by(tokens.c.id)).scalars().all()
        connection.execute(sa.insert(tokens).values(token(9, None)))  # by a replica of that release, during a rollout
    assert ends == [MOMENT + timedelta(days=end) for end in (90, 89, 90, 90)]
    for days, status in ((89, 200), (91, 401)):
        async with api_starter(database_url, Clock(MOMENT + timedelta(days=days)))(auth_mode="enforce") as api:
            assert (await api.answer("GET /api/auth/users", headers={"authorization": "Bearer shop_9"}))[0] == status


async def test_readiness_requires_that_the_migrations_have_run(api: Api, alembic: Config) -> None:
    assert await api.answer("GET /readyz") == (503, {"error": "Not ready"})
    command.upgrade(alembic, "head")
    assert await api.answer("GET /readyz") == (200, {"status": "ok"})
