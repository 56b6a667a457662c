"""Requests that meet in the database, on PostgreSQL, whose transactions run at once; a lock brings them together."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection

from employee_api.auth import SESSION_COOKIE
from shop_testkit.employee_api import PASSWORD, Api, Clock, Start, start_on

_WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


@pytest.fixture
def start_on_postgres(emptied_postgres: str, clock: Clock) -> Start:
    return start_on(emptied_postgres, clock)


@asynccontextmanager
async def holding(api: Api, statement: str) -> AsyncIterator[AsyncConnection]:
    """A transaction that has executed a statement, and commits at the end."""
    async with api.engine.begin() as connection:
        await connection.exec_driver_sql(statement)
        yield connection


async def all_waiting(api: Api, requests: Sequence[asyncio.Task[Any]]) -> None:
    """Every request waits for a lock."""
    async with asyncio.timeout(30), api.engine.connect() as connection:
        autocommit = await connection.execution_options(isolation_level="AUTOCOMMIT")
        while (await autocommit.exec_driver_sql(_WAITING)).scalar_one() < len(requests):  # noqa: ASYNC110
            await asyncio.sleep(0.01)  # the database tells nobody that somebody waits


async def log_in(api: Api, email: str) -> dict[str, str]:
    answer = await api.client.post("/api/auth/login", json={"email": email, "password": PASSWORD})
    token = answer.cookies[SESSION_COOKIE]
    api.client.cookies.clear()
    return {"authorization": f"Bearer {token}"}


async def test_of_two_leaders_who_delete_each_other_one_stays(start_on_postgres: Start) -> None:
    async with start_on_postgres() as api:
        ids = [(await api.user(role="ceo", email=f"{number}@x"))["id"] for number in range(2)]
    async with start_on_postgres(auth_mode="enforce") as api:
        bearers = [await log_in(api, f"{number}@x") for number in range(2)]
        async with holding(api, "SELECT * FROM users FOR UPDATE"):
            deletions = [
                asyncio.create_task(api.client.delete(f"/api/auth/users/{victim}", headers=bearer))
                for victim, bearer in zip(reversed(ids), bearers, strict=True)
            ]
            await all_waiting(api, deletions)
        assert sorted([(await deletion).status_code for deletion in deletions]) == [200, 401]


async def test_a_task_for_somebody_who_is_gone_at_last_is_refused(start_on_postgres: Start) -> None:
    async with start_on_postgres() as api:
        user = await api.user()
        async with holding(api, "DELETE FROM users"):
            new = {"title": "x", "assignee_id": user["id"]}
            adding = asyncio.create_task(api.client.post("/api/tasks", json=new))
            await all_waiting(api, [adding])
        answer = await adding
        assert (answer.status_code, answer.json()) == (400, {"error": "Unknown assignee"})


async def test_a_comment_on_a_task_that_is_gone_at_last_is_refused(start_on_postgres: Start) -> None:
    async with start_on_postgres() as api:
        task = await api.task()
        async with holding(api, "DELETE FROM tasks"):
            adding = asyncio.create_task(api.client.post(f"/api/tasks/{task['id']}/comments", json={"body": "x"}))
            await all_waiting(api, [adding])
        answer = await adding
        assert (answer.status_code, answer.json()) == (404, {"error": "Task not found"})


async def test_a_user_is_taken_off_a_task_that_is_assigned_while_they_are_deleted(start_on_postgres: Start) -> None:
    async with start_on_postgres() as api:
        user, task = await api.user(), await api.task()
        async with holding(api, "UPDATE tasks SET assignee_id = (SELECT id FROM users)"):
            deleting = asyncio.create_task(api.client.delete(f"/api/auth/users/{user['id']}"))
            await all_waiting(api, [deleting])
        assert (await deleting).status_code == 200
        assert (await api.client.get(f"/api/tasks/{task['id']}")).json()["assignee_id"] is None
