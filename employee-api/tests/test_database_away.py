"""Requests while the database is unreachable, locked, exhausted, read-only, behind a pooler, or fails any statement."""

import asyncio
import contextlib
import sqlite3
from typing import Any

import psycopg
import pytest
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError

from chassis.sql.engine import open_engine
from chassis.sql.migrate import migrate
from employee_api.database import MIGRATIONS, is_away
from shop_kit.employee_api import MODES, PASSWORD, Api, Clock, StartApi, api_starter, on_each_database
from shop_kit.postgres_relay import TransactionPooler

AWAY = (503, {"error": "The database is not available"})
UNEXPECTED = (500, {"error": "Internal server error"})


async def register(api: Api) -> tuple[int, Any]:
    new = {"name": "Ada", "email": "ada@x", "password": PASSWORD}
    response = await api.client.post("/api/auth/register", json=new)
    assert ("retry-after" in response.headers) is (response.status_code == 503)
    return response.status_code, response.json()


@pytest.mark.parametrize("mode", MODES)
async def test_a_refused_connection_is_a_503_with_authorization(clock: Clock, mode: str) -> None:
    async with api_starter("postgresql://user:secret@127.0.0.1:1/name", clock)(auth_mode=mode) as api:
        assert await register(api) == (UNEXPECTED if mode == "off" else AWAY)
        session = await api.client.get("/api/tasks", headers={"authorization": "Bearer x"})
        export = await api.client.get("/api/export/tasks")
    assert session.status_code == (500 if mode == "off" else 503)
    assert export.status_code == {"off": 500, "observe": 503, "enforce": 401}[mode]


async def test_a_locked_sqlite_file_is_a_503(sqlite_url: str, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chassis.sql.engine.BUSY_TIMEOUT_SECONDS", 0)
    async with api_starter(sqlite_url, clock)(auth_mode="observe") as api:
        with contextlib.closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as other:
            other.execute("BEGIN IMMEDIATE")
            assert await register(api) == AWAY
        assert (await register(api))[0] == 201


async def test_a_read_only_server_is_a_503(postgres_url: str, clock: Clock) -> None:
    separator = "&" if "?" in postgres_url else "?"
    url = f"{postgres_url}{separator}options=-c%20default_transaction_read_only%3Don"
    async with api_starter(url, clock)(auth_mode="observe") as api:
        assert await register(api) == AWAY


async def test_an_exhausted_pool_is_a_503(start_api: StartApi, monkeypatch: pytest.MonkeyPatch) -> None:
    async with start_api(auth_mode="observe") as api, contextlib.AsyncExitStack() as held:
        monkeypatch.setattr(api.engine.pool, "_timeout", 0.01)
        for _ in range(15):
            await held.enter_async_context(api.engine.execution_options(isolation_level="AUTOCOMMIT").connect())
        assert await register(api) == AWAY


AWAY_STATES = ["08006", "57P01", "57P03", "53300", "25006"]


def test_errors_of_postgresql_that_mean_away() -> None:
    for sqlstate in [*AWAY_STATES, "57014", "40P01", "23505", "42P01"]:
        error = psycopg.errors.lookup(sqlstate)("text")
        assert is_away(error) is is_away(DBAPIError("SELECT 1", {}, error)) is (sqlstate in AWAY_STATES)
    # Without a state, it is a lost connection, or no error of the server.
    assert is_away(psycopg.OperationalError("server closed the connection unexpectedly"))
    assert not is_away(psycopg.ProgrammingError("the query has 1 placeholder but 0 parameters were passed"))
    assert not is_away(RuntimeError())


def test_a_new_connection_of_a_request_has_five_seconds() -> None:
    url = open_engine("postgresql://user@one/name").url
    assert url.query["connect_timeout"] == "5"
    assert open_engine("postgresql://user@one/name?connect_timeout=2").url.query["connect_timeout"] == "2"


TASKS = 8  # psycopg would prepare a statement that a connection repeats so often


async def test_every_operation_runs_in_any_session_of_a_pooler(postgres_url: str, clock: Clock) -> None:
    async def use(api: Api) -> None:
        user = await api.add_user()
        for _ in range(TASKS):
            task = await api.add_task(assignee_id=user["id"])
            changed = await api.client.patch(f"/api/tasks/{task['id']}", json={"status": "done"})
            found = await api.client.get("/api/tasks?q=task")
            assert (changed.status_code, found.status_code) == (200, 200)

    async with TransactionPooler(postgres_url) as pooler:
        await asyncio.to_thread(migrate, pooler.url(), MIGRATIONS)
        async with api_starter(pooler.url(), clock)() as api:
            await asyncio.gather(use(api), use(api))
            export = await api.client.get("/api/export/tasks?tz=Europe/Berlin")
    assert export.text.count("\r\n") == 1 + 2 * TASKS


REFUSED = "INSERT INTO refused VALUES (0)"
REQUESTS: list[tuple[str, str, dict[str, Any] | None]] = [
    ("POST", "/api/auth/register", {"name": "Ada", "email": "ada@x", "password": PASSWORD}),
    ("POST", "/api/auth/login", {"email": "ada@x", "password": PASSWORD}),
    ("POST", "/api/auth/users", {"name": "Bob", "email": "bob@x", "password": PASSWORD}),
    ("POST", "/api/tasks", {"title": "Write it down"}),
    ("PATCH", "/api/tasks/{task}", {"status": "done"}),
    ("POST", "/api/tasks/{task}/comments", {"body": "Done"}),
    *[("GET", f"/api/{path}", None) for path in ("auth/users", "tasks", "tasks/{task}", "activities")],
    ("GET", "/api/tasks/{task}/comments", None),
    ("DELETE", "/api/tasks/{task}", None),
]


@on_each_database
async def test_any_failed_statement_is_a_500(api: Api) -> None:
    await api.execute("CREATE TABLE refused (number INT CHECK (number > 0))")
    task, failing = "", 0

    def fail(_connection: Any, _cursor: Any, text: str, parameters: Any, _context: Any, _many: bool) -> Any:
        nonlocal failing
        failing -= 1
        return (text, parameters) if failing else (REFUSED, ())

    event.listen(api.engine.sync_engine, "before_cursor_execute", fail, retval=True)
    for method, path, body in REQUESTS:
        for number in range(1, 100):
            failing = number
            response = await api.client.request(method, path.format(task=task), json=body)
            if failing > 0:  # it runs fewer statements
                break
            assert response.status_code == 500, (method, path, number, response.text)
        assert response.is_success, (method, path, response.text)
        task = response.json().get("id", "") if path == "/api/tasks" and method == "POST" else task
