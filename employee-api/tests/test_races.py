"""Concurrent requests on PostgreSQL; a lock held by the test makes them overlap."""

import asyncio
from typing import Any

import pytest

from shop_kit.employee_api import PASSWORD, Api, StartApi, path, started_with, task_path
from shop_kit.waiting import wait_for_result

_WAITING = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
USERS, TASKS = "SELECT * FROM users FOR UPDATE", "SELECT * FROM tasks FOR UPDATE"


@pytest.fixture
def database_url(postgres_url: str) -> str:
    return postgres_url


async def send_while_locked(
    api: Api, statement: str, *requests: tuple[Any, ...], meanwhile: str = "SELECT 1"
) -> list[tuple[int, Any]]:
    """Send requests that wait for a transaction with a statement; execute another one before it ends.

    If that fails, cancel the requests: their connections must not be left to the tests that follow.
    """
    async with asyncio.TaskGroup() as group, api.engine.begin() as connection:
        await connection.exec_driver_sql(statement)
        sent = [group.create_task(api.answer(*request)) for request in requests]
        await wait_for_result(lambda: api.execute(_WAITING), lambda blocked: len(blocked) >= len(requests))
        await api.execute(meanwhile)
    return [request.result() for request in sent]


@pytest.mark.parametrize(
    ("method", "action", "refused"), [("PATCH", "", 409), ("POST", "/deactivate", 401), ("DELETE", "", 401)]
)
async def test_one_of_two_management_users_who_remove_each_other_at_once_remains(
    start_api: StartApi, method: str, action: str, refused: int
) -> None:
    async with started_with(start_api, "enforce", "ceo", "ceo") as (api, users):
        requests = [
            (f"{method} {path(other)}{action}", {"role": "qa"}, await api.log_in(user["email"]))
            for user, other in zip(users, reversed(users), strict=True)
        ]
        answers = await send_while_locked(api, USERS, *requests)
        assert sorted(status for status, _ in answers) == [200, refused]


async def test_one_of_two_tokens_that_are_created_at_once_for_the_last_place_is_refused(start_api: StartApi) -> None:
    async with started_with(start_api, "enforce", "qa") as (api, _):
        create = "POST /api/auth/tokens", {"name": "x", "scopes": ["tasks:read"], "current_password": PASSWORD}
        for _ in range(49):
            await api.fetch(*create)
        assert sorted(status for status, _ in await send_while_locked(api, USERS, create, create)) == [201, 409]


async def test_a_task_for_a_user_who_is_deleted_meanwhile_is_refused(api: Api) -> None:
    create = "POST /api/tasks", {"title": "x", "assignee_id": (await api.add_user())["id"]}
    assert await send_while_locked(api, "DELETE FROM users", create) == [(400, {"error": "Unknown assignee"})]


async def test_a_comment_on_a_task_that_is_deleted_meanwhile_is_refused(api: Api) -> None:
    comment = f"POST {task_path(await api.add_task())}/comments", {"body": "x"}
    assert await send_while_locked(api, "DELETE FROM tasks", comment) == [(404, {"error": "Task not found"})]


async def test_a_deleted_user_is_removed_from_a_task_that_is_assigned_meanwhile(api: Api) -> None:
    user, task = await api.add_user(), await api.add_task()
    assign = "UPDATE tasks SET assignee_id = (SELECT id FROM users)"
    [(status, _)] = await send_while_locked(api, assign, (f"DELETE {path(user)}",))
    assert status == 200
    assert (await api.fetch(f"GET {task_path(task)}"))["assignee_id"] is None


async def test_several_tasks_are_locked_in_the_order_of_their_ids(api: Api) -> None:
    ids = [(await api.add_task())["id"]]
    while ids[-1] >= ids[0]:  # until the order in which they are stored is another one
        ids.append((await api.add_task())["id"])
    assign = "POST /api/tasks/assign", {"task_ids": [max(ids), min(ids)], "assignee_id": None}
    first, second = "SELECT * FROM tasks ORDER BY id LIMIT 1", "SELECT * FROM tasks ORDER BY id DESC LIMIT 1"
    # Fails if it has locked the second one already.
    [(status, _)] = await send_while_locked(api, f"{first} FOR UPDATE", assign, meanwhile=f"{second} FOR UPDATE NOWAIT")
    assert status == 200


async def test_deleting_a_user_waits_for_changes_to_tasks_with_their_comments(api: Api) -> None:
    # Otherwise it could deadlock with the deletion of a task: each would wait for a comment that the other has locked.
    user, task = await api.add_user(), await api.add_task()
    await api.fetch(f"POST {task_path(task)}/comments", {"body": "x", "author_id": user["id"]})
    [(status, _)] = await send_while_locked(api, TASKS, (f"DELETE {path(user)}",))
    assert status == 200
    assert await api.fetch(f"GET {task_path(task)}") == task
    assert [item["action"] for item in await api.activities()] == ["deleted", "commented", "created", "created"]
