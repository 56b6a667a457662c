"""Migrations; rows that an earlier release has written, and that release beside this one during a rollout."""

import hashlib
import uuid
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import (
    JSON,
    Connection,
    Date,
    Engine,
    LargeBinary,
    Text,
    Uuid,
    column,
    create_engine,
    delete,
    insert,
    make_url,
    select,
    table,
    update,
)

from chassis.sql.migrate import migrate
from employee_api.database import MIGRATIONS
from employee_api.models import UtcDateTime
from shop_kit.employee_api import Api, Clock, api_starter

MOMENT = datetime(2026, 3, 14, 15, 9, 26, 535897, tzinfo=UTC)
ADA, BOB, WATER, BARE = (uuid.UUID(int=number) for number in range(1, 5))
TOKEN = "a token of the earlier release"


def _columns(**types: Any) -> list[Any]:
    return [column(name, column_type) for name, column_type in types.items()]


# As revision 0001 has them, which is what the statements of that release name.
USERS = table(
    "users",
    *_columns(id=Uuid(), name=Text(), email=Text(), email_key=Text(), password_hash=Text(), role=Text()),
    *_columns(color=Text(), avatar=Text(), dept=Text(), created_at=UtcDateTime()),
)
TASKS = table(
    "tasks",
    *_columns(id=Uuid(), title=Text(), description=Text(), status=Text(), priority=Text(), assignee_id=Uuid()),
    *_columns(reporter_id=Uuid(), due_date=Date(), created_at=UtcDateTime(), updated_at=UtcDateTime()),
)
COMMENTS = table(
    "comments", *_columns(id=Uuid(), task_id=Uuid(), author_id=Uuid(), body=Text(), created_at=UtcDateTime())
)
ACTIVITIES = table(
    "activities",
    *_columns(id=Uuid(), actor_id=Uuid(), action=Text(), subject_type=Text(), subject_id=Uuid(), subject_name=Text()),
    *_columns(changes=JSON(), created_at=UtcDateTime()),
)
SESSIONS = table(
    "sessions",
    *_columns(token_hash=LargeBinary(), user_id=Uuid(), created_at=UtcDateTime(), last_seen_at=UtcDateTime()),
    *_columns(expires_at=UtcDateTime()),
)


def _user(user_id: uuid.UUID, name: str, email: str, **more: Any) -> dict[str, Any]:
    fields = {"id": user_id, "name": name, "email": email, "email_key": email.casefold(), "password_hash": "no hash"}
    return fields | {"role": "ceo", "color": "#818cf8", "avatar": "É", "dept": "", "created_at": MOMENT} | more


def _task(task_id: uuid.UUID, title: str, **more: Any) -> dict[str, Any]:
    fields = {"id": task_id, "title": title, "description": "", "status": "todo", "priority": "low"}
    no_users = {"assignee_id": None, "reporter_id": None, "due_date": None}
    return fields | no_users | {"created_at": MOMENT, "updated_at": MOMENT} | more


def _activity(number: int, **more: Any) -> dict[str, Any]:
    fields = {"id": uuid.UUID(int=number), "actor_id": None, "action": "deleted", "subject_type": "user"}
    subject = {"subject_id": uuid.UUID(int=99), "subject_name": "Straße 🌵", "changes": {}, "created_at": MOMENT}
    return fields | subject | more


COMMENT = {"id": uuid.UUID(int=5), "task_id": WATER, "author_id": None, "body": "✓ 完了\n", "created_at": MOMENT}
SESSION = {
    "token_hash": hashlib.sha256(TOKEN.encode()).digest(),
    "user_id": ADA,
    "created_at": MOMENT,
    "last_seen_at": MOMENT,
    "expires_at": MOMENT + timedelta(days=7),
}
API_TOKEN = "shop_token of the earlier release"
API_TOKENS = table(
    "api_tokens",
    *_columns(id=Uuid(), token_hash=LargeBinary(), user_id=Uuid(), name=Text(), scopes=Text()),
    *_columns(created_at=UtcDateTime(), expires_at=UtcDateTime()),
)
TOKENS_OF_0004 = {
    "id": uuid.UUID(int=1),
    "token_hash": hashlib.sha256(API_TOKEN.encode()).digest(),
    "user_id": ADA,
    "name": "report",
    "scopes": "users:read",
    "created_at": MOMENT,
}
ROWS: list[tuple[Any, list[dict[str, Any]]]] = [
    (
        USERS,
        [
            _user(ADA, "Åda\u0301 O'Love; --", "Ada+Spaß@Bücher.example", role="ceo", dept="R&D"),
            _user(BOB, '"Bob"\t', "not an address", role="", password_hash=""),
            _user(uuid.UUID(int=11), "Eve", " Eve@x\t", dept=" "),
            _user(uuid.UUID(int=12), "Other Bob", "\tnot an address"),
            _user(uuid.UUID(int=6), "😀", '"quoted @ local"@x', role="any role at all"),
        ],
    ),
    (
        TASKS,
        [
            _task(WATER, "Wässern", assignee_id=ADA, reporter_id=BOB, due_date=date(2028, 2, 29), status="review"),
            _task(BARE, "% _ \\ 水", description="\u200b\n" * 3),
        ],
    ),
    (COMMENTS, [COMMENT, COMMENT | {"id": uuid.UUID(int=7), "author_id": BOB}]),
    (ACTIVITIES, [_activity(8), _activity(9, actor_id=ADA, changes={"name": {"before": None, "after": "é"}})]),
    (SESSIONS, [SESSION]),
]


@pytest.fixture
def engine(empty_url: str, alembic: Config) -> Iterator[Engine]:
    """A database of revision 0001 with rows in every table."""
    command.upgrade(alembic, "0001")
    driver = "sqlite" if empty_url.startswith("sqlite") else "postgresql+psycopg"
    engine = create_engine(make_url(empty_url).set(drivername=driver))
    with engine.begin() as connection:
        for rows_of, rows in ROWS:
            connection.execute(insert(rows_of), rows)
    yield engine
    engine.dispose()


def _migrated(row: dict[str, Any]) -> dict[str, Any]:
    # Keys of e-mails have lost the white space around them, unless another user has the key without it.
    stripped, keys = row.get("email_key", "").strip(), {user["email_key"] for user in ROWS[0][1]}
    return row | {"email_key": stripped} if stripped not in {"", *keys} else row


def _read(connection: Connection, rows_of: Any) -> list[dict[str, Any]]:
    rows = connection.execute(select(rows_of)).mappings().all()
    return sorted(map(dict, rows), key=repr)


def test_migrating_preserves_every_value(engine: Engine, alembic: Config) -> None:
    command.upgrade(alembic, "head")
    with engine.connect() as connection:
        for rows_of, rows in ROWS:
            assert _read(connection, rows_of) == sorted(map(_migrated, rows), key=repr)


def test_the_statements_of_an_earlier_release_work_on_the_new_schema(engine: Engine, alembic: Config) -> None:
    command.upgrade(alembic, "head")
    new_user, new_task = _user(uuid.uuid4(), "New", "new@x"), _task(uuid.uuid4(), "New", assignee_id=BOB)
    new_comment = COMMENT | {"id": uuid.uuid4(), "task_id": new_task["id"], "author_id": BOB}
    new_session = SESSION | {"token_hash": b"other", "user_id": new_user["id"]}
    inserted = [(USERS, new_user), (TASKS, new_task), (COMMENTS, new_comment)]
    inserted += [(ACTIVITIES, _activity(10, actor_id=BOB)), (SESSIONS, new_session)]
    with engine.begin() as connection:
        if engine.dialect.name == "sqlite":
            connection.exec_driver_sql("PRAGMA foreign_keys = ON")
        for rows_of, row in inserted:
            connection.execute(insert(rows_of).values(row))
            assert row in _read(connection, rows_of)
        for rows_of, changes in ((USERS, {"password_hash": "x"}), (TASKS, {"status": "done"})):
            connection.execute(update(rows_of).values(changes))
        connection.execute(update(SESSIONS).where(SESSIONS.c.user_id == ADA).values(last_seen_at=MOMENT))
        connection.execute(delete(USERS).where(USERS.c.id.in_([BOB, new_user["id"]])))
        assert [row["id"] for row in _read(connection, TASKS) if row["assignee_id"]] == [WATER]
        assert {row["author_id"] for row in _read(connection, COMMENTS)} == {None}
        assert [row["user_id"] for row in _read(connection, SESSIONS)] == [ADA]
        connection.execute(delete(TASKS).where(TASKS.c.id == new_task["id"]))
        assert {row["task_id"] for row in _read(connection, COMMENTS)} == {WATER}


@pytest.mark.usefixtures("engine")
async def test_rows_of_an_earlier_release_are_served(alembic: Config, empty_url: str) -> None:
    command.upgrade(alembic, "head")
    async with api_starter(empty_url, Clock(MOMENT + timedelta(minutes=1)))(auth_mode="enforce") as api:
        api.client.headers["authorization"] = f"Bearer {TOKEN}"
        users = (await api.client.get("/api/auth/users")).json()
        assert {user["name"] for user in users} == {row["name"] for row in ROWS[0][1]}
        [session] = (await api.client.get("/api/auth/sessions")).json()
        assert (session["address"], session["user_agent"]) == ("", "")
        [task] = (await api.client.get("/api/tasks", params={"q": "WÄSSERN"})).json()["items"]
        assert (task["due_date"], task["assignee_id"], task["reporter_id"]) == ("2028-02-29", str(ADA), str(BOB))
        comments = (await api.client.get(f"/api/tasks/{WATER}/comments")).json()["items"]
        assert {comment["body"] for comment in comments} == {COMMENT["body"]}
        assert {comment["edited_at"] for comment in comments} == {None}
        assert len((await api.client.get("/api/activities")).json()["items"]) == 2
        export = await api.client.get("/api/export/users")
        assert export.status_code == 200
        assert export.text.count("Spaß") == 1


def test_tokens_of_an_earlier_release_end_90_days_after_their_creation(engine: Engine, alembic: Config) -> None:
    command.upgrade(alembic, "0004")
    days = [None, 89, 90, 91]
    with engine.begin() as connection:
        for number, end in enumerate(days):
            token = TOKENS_OF_0004 | {"id": uuid.UUID(int=number), "token_hash": bytes([number])}
            expires_at = None if end is None else MOMENT + timedelta(days=end)
            connection.execute(insert(API_TOKENS).values(token | {"expires_at": expires_at}))
    command.upgrade(alembic, "head")
    with engine.connect() as connection:
        ends = connection.execute(select(API_TOKENS.c.expires_at).order_by(API_TOKENS.c.id)).scalars().all()
    assert ends == [MOMENT + timedelta(days=end) for end in (90, 89, 90, 90)]


async def test_a_token_of_an_earlier_release_during_a_rollout_ends_after_90_days(
    engine: Engine, alembic: Config, empty_url: str
) -> None:
    command.upgrade(alembic, "head")
    with engine.begin() as connection:
        connection.execute(insert(API_TOKENS).values(TOKENS_OF_0004 | {"expires_at": None}))
    bearer = {"authorization": f"Bearer {API_TOKEN}"}
    for days, status in ((89, 200), (91, 401)):
        async with api_starter(empty_url, Clock(MOMENT + timedelta(days=days)))(auth_mode="enforce") as api:
            assert (await api.client.get("/api/auth/users", headers=bearer)).status_code == status


def test_the_migrations_agree_with_the_models(empty_url: str, alembic: Config) -> None:
    migrate(empty_url, MIGRATIONS)
    command.check(alembic)


async def test_readiness_requires_that_the_migrations_have_run(api: Api) -> None:
    assert (await api.client.get("/readyz")).json() == {"status": "ok"}
    async with api.engine.begin() as connection:
        await connection.exec_driver_sql("ALTER TABLE alembic_version RENAME TO hidden")
    try:
        response = await api.client.get("/readyz")
        assert (response.status_code, response.json()) == (503, {"error": "Not ready"})
    finally:
        async with api.engine.begin() as connection:
            await connection.exec_driver_sql("ALTER TABLE hidden RENAME TO alembic_version")
