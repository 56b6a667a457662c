import asyncio
from typing import Any

import pytest

from shop_lab.world.employee_accounts import UNKNOWN_ID
from shop_lab.world.employee_api import PASSWORD, Api, StartApi

ASSIGN = "/api/tasks/assign"


async def assignees(api: Api) -> set[str | None]:
    [tasks] = await api.pages("/api/tasks", limit=200)
    return {task["assignee_id"] for task in tasks}


async def test_several_tasks_get_one_assignee(api: Api) -> None:
    user = await api.add_user()
    tasks = [await api.add_task(str(number)) for number in range(3)]
    ids = [task["id"] for task in tasks]
    response = await api.client.post(ASSIGN, json={"task_ids": ids, "assignee_id": user["id"]})
    assert (response.status_code, response.json()) == (200, {"success": True, "changed": sorted(ids)})
    [changed] = await api.pages("/api/tasks")
    assert [task["assignee_id"] for task in changed] == [user["id"]] * 3


async def test_only_tasks_with_another_assignee_change(api: Api) -> None:
    user = await api.add_user()
    other, same = await api.add_task("other"), await api.add_task("same", assignee_id=user["id"])
    ids = [same["id"], other["id"], other["id"]]
    response = await api.client.post(ASSIGN, json={"task_ids": ids, "assignee_id": user["id"]})
    assert response.json()["changed"] == [other["id"]]
    assert (await api.client.get(f"/api/tasks/{same['id']}")).json() == same
    assert (await api.client.get(f"/api/tasks/{other['id']}")).json()["updated_at"] > other["updated_at"]


async def test_each_task_has_an_activity(api: Api) -> None:
    user = await api.add_user()
    tasks = [await api.add_task("new"), await api.add_task("old", assignee_id=user["id"])]
    await api.client.post(ASSIGN, json={"task_ids": [task["id"] for task in tasks], "assignee_id": None})
    await api.client.post(ASSIGN, json={"task_ids": [tasks[0]["id"]], "assignee_id": user["id"]})
    found = [(item["subject_name"], item["changes"]) for item in await api.activities() if item["action"] == "updated"]
    assert found == [
        ("new", {"assignee_id": {"before": None, "after": user["id"]}}),
        ("old", {"assignee_id": {"before": user["id"], "after": None}}),
    ]


async def test_with_one_unknown_task_none_is_changed(api: Api) -> None:
    user, task = await api.add_user(), await api.add_task()
    response = await api.client.post(ASSIGN, json={"task_ids": [task["id"], UNKNOWN_ID], "assignee_id": user["id"]})
    assert (response.status_code, response.json()) == (404, {"error": "A task was not found, and none was changed"})
    assert (await api.client.get(f"/api/tasks/{task['id']}")).json() == task
    assert [item["action"] for item in await api.activities()] == ["created", "created"]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"task_ids": []}, "task_ids"),
        ({"task_ids": [UNKNOWN_ID] * 201}, "task_ids"),
        ({"task_ids": ["1"]}, "task_ids"),
        ({"task_ids": UNKNOWN_ID}, "task_ids"),
        ({"assignee_id": "1"}, "assignee_id"),
        ({"assignee_id": UNKNOWN_ID}, "Unknown assignee"),
        ({"status": "done"}, "status"),
    ],
)
async def test_an_invalid_assignment_gets_a_400_and_changes_nothing(
    api: Api, change: dict[str, Any], text: str
) -> None:
    user, task = await api.add_user(), await api.add_task()
    body = {"task_ids": [task["id"]], "assignee_id": user["id"]} | change
    response = await api.client.post(ASSIGN, json=body)
    assert response.status_code == 400
    assert text in response.json()["error"]
    assert await assignees(api) == {None}


async def test_an_assignee_must_be_given(api_on_sqlite: Api) -> None:
    # A forgotten field must not unassign 200 tasks.
    task = await api_on_sqlite.add_task()
    assert (await api_on_sqlite.client.post(ASSIGN, json={"task_ids": [task["id"]]})).status_code == 400


async def test_concurrent_assignments_of_the_same_tasks_do_not_mix_or_deadlock(api: Api) -> None:
    users = [await api.add_user() for _ in range(4)]
    ids = [(await api.add_task())["id"] for _ in range(6)]
    requests = [
        api.client.post(ASSIGN, json={"task_ids": ids if number % 2 else ids[::-1], "assignee_id": user["id"]})
        for number, user in enumerate(users * 3)
    ]
    responses = await asyncio.gather(*requests)
    assert {response.status_code for response in responses} == {200}
    assert len(await assignees(api)) == 1


async def test_a_repeated_assignment_gets_the_stored_response(api: Api) -> None:
    user, task = await api.add_user(), await api.add_task()
    body, key = {"task_ids": [task["id"]], "assignee_id": user["id"]}, {"idempotency-key": "k"}
    first = await api.client.post(ASSIGN, json=body, headers=key)
    await api.client.patch(f"/api/tasks/{task['id']}", json={"assignee_id": None})
    assert (await api.client.post(ASSIGN, json=body, headers=key)).json() == first.json()
    assert await assignees(api) == {None}


async def test_assignments_are_recorded_with_the_user_of_the_session(start_api: StartApi) -> None:
    async with start_api() as api:
        user = await api.add_user(email="ada@x")
    async with start_api(auth_mode="enforce") as api:
        await api.client.post("/api/auth/login", json={"email": "ada@x", "password": PASSWORD})
        task = await api.add_task()
        await api.client.post(ASSIGN, json={"task_ids": [task["id"]], "assignee_id": user["id"]})
        [[activity]] = await api.pages("/api/activities", subject=task["id"], action="updated")
        assert activity["actor_id"] == user["id"]
