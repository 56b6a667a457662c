import asyncio
import uuid
from typing import Any

import pytest
from sqlalchemy import func, select

from employee_api.models import Comment
from shop_kit.employee_accounts import UNKNOWN_ID
from shop_kit.employee_api import Api

STATUSES = "must be 'todo', 'in_progress', 'review' or 'done'"
PRIORITIES = "must be 'low', 'medium', 'high' or 'urgent'"


async def test_a_created_task_can_be_read_and_has_defaults_for_every_field_but_its_title(api: Api) -> None:
    task = await api.add_task("Water the plants")
    assert str(uuid.UUID(task["id"])) == task["id"]
    assert task["created_at"] == task["updated_at"] == "2026-03-14T15:09:26.001000Z"
    defaults = {"description": "", "status": "todo", "priority": "medium", "due_date": None}
    assert task.items() >= (defaults | {"assignee_id": None, "reporter_id": None}).items()
    user = await api.add_user()
    more = {"status": "review", "priority": "urgent", "due_date": "2026-12-24", "description": "All\nof them"}
    task = await api.add_task("Water the plants", assignee_id=user["id"], reporter_id=user["id"], **more)
    assert (await api.client.get(f"/api/tasks/{task['id']}")).json() == task
    assert task.items() >= (more | {"assignee_id": user["id"]}).items()


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "title is required"),
        ({"title": ""}, "title must not be empty"),
        ({"title": 1}, "title must be text"),
        ({"title": "x\0"}, "title has a character that is not allowed"),
        ({"title": "x" * 501}, "title is too long: at most 500 characters"),
        ({"title": "x", "status": "frozen"}, f"status {STATUSES}"),
        ({"title": "x", "priority": 1, "status": None}, f"status {STATUSES}; priority {PRIORITIES}"),
        ({"title": "x", "due_date": "2026-02-30"}, "due_date must be a date of the calendar"),
        ({"title": "x", "due_date": "2026-W01-1"}, "due_date must be YYYY-MM-DD"),
        ({"title": "x", "due_date": 1}, "due_date must be YYYY-MM-DD"),
        ({"title": "x", "assignee_id": "ada"}, "assignee_id must be a UUID"),
        ({"title": "x", "asignee_id": UNKNOWN_ID}, "asignee_id is unknown"),
        ({"title": "x", "assignee_id": UNKNOWN_ID}, "Unknown assignee"),
        ({"title": "x", "reporter_id": UNKNOWN_ID}, "Unknown reporter"),
    ],
)
async def test_an_invalid_task_gets_a_400_that_names_the_fields(api: Api, fields: dict[str, Any], text: str) -> None:
    response = await api.client.post("/api/tasks", json=fields)
    assert (response.status_code, response.json()) == (400, {"error": text})
    assert (await api.client.get("/api/tasks")).json()["items"] == []


async def test_a_patch_changes_only_what_it_names_and_records_the_values_before_and_after(api: Api) -> None:
    user = await api.add_user()
    task = await api.add_task("Water the plants", assignee_id=user["id"], due_date="2026-12-24")
    path, patch = f"/api/tasks/{task['id']}", {"title": "Water all", "assignee_id": None}
    changed = (await api.client.patch(path, json=patch)).json()
    assert changed == task | patch | {"updated_at": changed["updated_at"]}
    assert changed["updated_at"] > task["updated_at"]
    assert (await api.client.get(path)).json() == changed
    activity = (await api.activities())[0]
    recorded = ("updated", task["id"], "Water all")
    assert (activity["action"], activity["subject_id"], activity["subject_name"]) == recorded
    assert activity["changes"] == {
        "title": {"before": "Water the plants", "after": "Water all"},
        "assignee_id": {"before": user["id"], "after": None},
    }


@pytest.mark.parametrize("patch", [{}, {"status": "todo"}])
async def test_a_patch_without_effect_records_no_activity(api: Api, patch: dict[str, Any]) -> None:
    task = await api.add_task()
    response = await api.client.patch(f"/api/tasks/{task['id']}", json=patch)
    assert (response.status_code, response.json()) == (200, task)
    assert [item["action"] for item in await api.activities()] == ["created"]


@pytest.mark.parametrize("patch", [{"title": None}, {"title": ""}, {"assignee_id": UNKNOWN_ID}, {"id": UNKNOWN_ID}, []])
async def test_an_invalid_patch_changes_nothing(api: Api, patch: Any) -> None:
    task = await api.add_task()
    response = await api.client.patch(f"/api/tasks/{task['id']}", json=patch)
    assert response.status_code == 400
    assert (await api.client.get(f"/api/tasks/{task['id']}")).json() == task


async def test_concurrent_patches_of_different_fields_all_apply(api: Api) -> None:
    task = await api.add_task()
    path = f"/api/tasks/{task['id']}"
    patches = [{"status": "done"}, {"priority": "low"}, {"title": "New"}, {"description": "More"}]
    await asyncio.gather(*(api.client.patch(path, json=patch) for patch in patches))
    final = (await api.client.get(path)).json()
    assert all(patch.items() <= final.items() for patch in patches)


async def test_concurrent_patches_of_one_field_are_recorded_in_the_order_they_applied(api: Api) -> None:
    task = await api.add_task("0")
    path = f"/api/tasks/{task['id']}"
    await asyncio.gather(*(api.client.patch(path, json={"title": str(number)}) for number in range(1, 9)))
    changes = [item["changes"]["title"] for item in await api.activities() if item["action"] == "updated"]
    last = (await api.client.get(path)).json()["title"]
    assert {change["before"] for change in changes} == {str(number) for number in range(9)} - {last}


@pytest.mark.parametrize(("method", "body"), [("PATCH", {"title": "Mine"}), ("DELETE", None)])
async def test_a_change_of_a_task_that_has_changed_since_it_was_read_is_refused(
    api: Api, method: str, body: Any
) -> None:
    path = f"/api/tasks/{(await api.add_task())['id']}"
    read = {"if-match": (await api.client.get(path)).headers["etag"]}
    theirs = await api.client.patch(path, json={"title": "Theirs"}, headers=read)
    assert theirs.status_code == 200
    refused = await api.client.request(method, path, json=body, headers=read)
    assert (refused.status_code, refused.json()) == (412, {"error": "Changed since it was read"})
    assert (await api.client.get(path)).json() == theirs.json()
    current = {"if-match": theirs.headers["etag"]}
    assert (await api.client.request(method, path, json=body, headers=current)).status_code == 200


async def test_one_of_several_concurrent_changes_of_the_same_state_applies(api: Api) -> None:
    path = f"/api/tasks/{(await api.add_task('0'))['id']}"
    read = {"if-match": (await api.client.get(path)).headers["etag"]}
    changes = [api.client.patch(path, json={"title": str(number)}, headers=read) for number in range(1, 9)]
    responses = await asyncio.gather(*changes)
    assert sorted(response.status_code for response in responses) == [200] + [412] * 7
    [applied] = [response.json() for response in responses if response.status_code == 200]
    assert (await api.client.get(path)).json() == applied


async def test_deleting_a_task_deletes_its_comments(api: Api) -> None:
    path = f"/api/tasks/{(await api.add_task())['id']}"
    await api.client.post(f"{path}/comments", json={"body": "Done"})
    response = await api.client.delete(path)
    assert (response.status_code, response.json()) == (200, {"success": True, "id": path.rpartition("/")[2]})
    assert (await api.client.get(path)).status_code == 404
    async with api.engine.connect() as connection:
        assert (await connection.execute(select(func.count()).select_from(Comment))).scalar_one() == 0


async def test_pages_contain_every_task_once_even_with_equal_creation_times(api: Api) -> None:
    creation_time = api.clock.now
    created = set()
    for _ in range(7):
        api.clock.now = creation_time
        created.add((await api.add_task())["id"])
    found = await api.pages("/api/tasks", limit=3)
    assert [len(page) for page in found] == [3, 3, 1]
    assert {task["id"] for page in found for task in page} == created


async def test_later_tasks_do_not_shift_the_pages(api: Api) -> None:
    for number in range(4):
        await api.add_task(str(number))
    first = (await api.client.get("/api/tasks?limit=2")).json()
    await api.add_task("later")
    second = (await api.client.get("/api/tasks", params={"limit": 2, "cursor": first["next"]})).json()
    assert [task["title"] for task in first["items"] + second["items"]] == ["3", "2", "1", "0"]


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


async def test_a_repeated_assignment_gets_the_stored_response(api: Api) -> None:
    user, task = await api.add_user(), await api.add_task()
    body, key = {"task_ids": [task["id"]], "assignee_id": user["id"]}, {"idempotency-key": "k"}
    first = await api.client.post(ASSIGN, json=body, headers=key)
    await api.client.patch(f"/api/tasks/{task['id']}", json={"assignee_id": None})
    assert (await api.client.post(ASSIGN, json=body, headers=key)).json() == first.json()
    assert await assignees(api) == {None}
