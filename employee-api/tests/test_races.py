"""Concurrent requests on PostgreSQL; a lock held by the test makes them overlap."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from shop_kit.employee_api import PASSWORD, Api, Clock, StartApi, api_starter, path, started_with
from shop_kit.waiting import wait_until

_WAITING = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


@pytest.fixture
def start_api(postgres_url: str, clock: Clock) -> StartApi:
    return api_starter(postgres_url, clock)


@asynccontextmanager
async def holding_locks(api: Api, statement: str) -> AsyncIterator[asyncio.TaskGroup]:
    """Execute a statement in a transaction that commits at the end of the block, and then wait for the group's tasks.

    If the block fails, cancel them: their connections must not be left to the tests that follow.
    """
    async with asyncio.TaskGroup() as requests, api.engine.begin() as connection:
        await connection.exec_driver_sql(statement)
        yield requests


async def wait_until_blocked(api: Api, *requests: asyncio.Task[Any]) -> None:
    """Wait until every request waits for a lock."""

    async def are_blocked() -> bool:
        return len(await api.execute(_WAITING)) >= len(requests)

    await wait_until(are_blocked)


@pytest.mark.parametrize(
    ("method", "action", "refused"), [("PATCH", "", 409), ("POST", "/deactivate", 401), ("DELETE", "", 401)]
)
async def test_one_of_two_management_users_who_remove_each_other_at_once_remains(
    start_api: StartApi, method: str, action: str, refused: int
) -> None:
    async with started_with(start_api, "enforce", "ceo", "ceo") as (api, users):
        bearers = [await api.log_in(user["email"]) for user in users]
        async with holding_locks(api, "SELECT * FROM users FOR UPDATE") as group:
            requests = [
                group.create_task(api.client.request(method, path(user, action), headers=bearer, json={"role": "qa"}))
                for user, bearer in zip(reversed(users), bearers, strict=True)
            ]
            await wait_until_blocked(api, *requests)
        assert sorted([(await request).status_code for request in requests]) == [200, refused]


async def test_one_of_two_tokens_that_are_created_at_once_for_the_last_place_is_refused(
    start_api: StartApi,
) -> None:
    async with started_with(start_api, "enforce", "qa") as (api, _):
        new = {"name": "x", "scopes": ["tasks:read"], "current_password": PASSWORD}
        for _ in range(49):
            (await api.client.post("/api/auth/tokens", json=new)).raise_for_status()
        async with holding_locks(api, "SELECT * FROM users FOR UPDATE") as group:
            requests = [group.create_task(api.client.post("/api/auth/tokens", json=new)) for _ in range(2)]
            await wait_until_blocked(api, *requests)
        assert sorted([(await request).status_code for request in requests]) == [201, 409]


async def test_a_task_for_a_user_who_is_deleted_meanwhile_is_refused(start_api: StartApi) -> None:
    async with start_api() as api:
        user = await api.add_user()
        async with holding_locks(api, "DELETE FROM users") as group:
            new = {"title": "x", "assignee_id": user["id"]}
            adding = group.create_task(api.client.post("/api/tasks", json=new))
            await wait_until_blocked(api, adding)
        response = await adding
        assert (response.status_code, response.json()) == (400, {"error": "Unknown assignee"})


async def test_a_comment_on_a_task_that_is_deleted_meanwhile_is_refused(start_api: StartApi) -> None:
    async with start_api() as api:
        task = await api.add_task()
        async with holding_locks(api, "DELETE FROM tasks") as group:
            adding = group.create_task(api.client.post(f"/api/tasks/{task['id']}/comments", json={"body": "x"}))
            await wait_until_blocked(api, adding)
        response = await adding
        assert (response.status_code, response.json()) == (404, {"error": "Task not found"})


async def test_a_deleted_user_is_removed_from_a_task_that_is_assigned_meanwhile(
    start_api: StartApi,
) -> None:
    async with start_api() as api:
        user, task = await api.add_user(), await api.add_task()
        async with holding_locks(api, "UPDATE tasks SET assignee_id = (SELECT id FROM users)") as group:
            deleting = group.create_task(api.client.delete(f"/api/auth/users/{user['id']}"))
            await wait_until_blocked(api, deleting)
        assert (await deleting).status_code == 200
        assert (await api.client.get(f"/api/tasks/{task['id']}")).json()["assignee_id"] is None


async def test_several_tasks_are_locked_in_the_order_of_their_ids(start_api: StartApi) -> None:
    async with start_api() as api:
        ids = [(await api.add_task())["id"]]
        while ids[-1] >= ids[0]:  # until the order in which they are stored is another one
            ids.append((await api.add_task())["id"])
        async with holding_locks(api, "SELECT * FROM tasks ORDER BY id LIMIT 1 FOR UPDATE") as group:
            body = {"task_ids": [max(ids), min(ids)], "assignee_id": None}
            assigning = group.create_task(api.client.post("/api/tasks/assign", json=body))
            await wait_until_blocked(api, assigning)
            # Fails if it has locked the other one already.
            async with holding_locks(api, "SELECT * FROM tasks ORDER BY id DESC LIMIT 1 FOR UPDATE NOWAIT"):
                pass
        assert (await assigning).status_code == 200


async def test_deleting_a_user_waits_for_changes_to_tasks_with_their_comments(start_api: StartApi) -> None:
    # Otherwise it could deadlock with the deletion of a task: each would wait for a comment that the other has locked.
    async with start_api() as api:
        user, task = await api.add_user(), await api.add_task()
        await api.client.post(f"/api/tasks/{task['id']}/comments", json={"body": "x", "author_id": user["id"]})
        async with holding_locks(api, "SELECT * FROM tasks FOR UPDATE") as group:
            deleting = group.create_task(api.client.delete(f"/api/auth/users/{user['id']}"))
            await wait_until_blocked(api, deleting)
        assert (await deleting).status_code == 200
        assert (await api.client.get(f"/api/tasks/{task['id']}")).json() == task
        assert [item["action"] for item in await api.activities()] == ["deleted", "commented", "created", "created"]
