import asyncio
import uuid
from typing import Any

import pytest
from sqlalchemy import select

from employee_api.models import Comment
from shop_kit.employee_api import UNKNOWN_ID, Api, on_each_database, status_and_body

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
    assert status_and_body(await api.client.post("/api/tasks", json=fields)) == (400, {"error": text})
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


async def test_a_patch_that_is_invalid_or_without_effect_changes_and_records_nothing(api: Api) -> None:
    task = await api.add_task()
    invalid: list[Any] = [{"title": None}, {"title": ""}, {"assignee_id": UNKNOWN_ID}, {"id": UNKNOWN_ID}, []]
    for patch in [{}, {"status": "todo"}, *invalid]:
        response = await api.client.patch(f"/api/tasks/{task['id']}", json=patch)
        assert response.status_code == (400 if patch in invalid else 200)
    assert (await api.client.get(f"/api/tasks/{task['id']}")).json() == task
    assert [item["action"] for item in await api.activities()] == ["created"]


@on_each_database
async def test_concurrent_patches_all_apply_and_are_recorded_in_the_order_they_applied(api: Api) -> None:
    path = f"/api/tasks/{(await api.add_task('0'))['id']}"
    patches = [{"status": "done"}, {"priority": "low"}, {"description": "More"}]
    titles = [{"title": str(number)} for number in range(1, 9)]
    await asyncio.gather(*(api.client.patch(path, json=patch) for patch in patches + titles))
    final = (await api.client.get(path)).json()
    assert all(patch.items() <= final.items() for patch in patches)
    changes = [item["changes"]["title"] for item in await api.activities() if "title" in item["changes"]]
    assert {change["before"] for change in changes} == {None, *(str(number) for number in range(9))} - {final["title"]}


@pytest.mark.parametrize(("method", "body"), [("PATCH", {"title": "Mine"}), ("DELETE", None)])
async def test_a_change_of_a_task_that_has_changed_since_it_was_read_is_refused(
    api: Api, method: str, body: Any
) -> None:
    path = f"/api/tasks/{(await api.add_task())['id']}"
    read = {"if-match": (await api.client.get(path)).headers["etag"]}
    theirs = await api.client.patch(path, json={"title": "Theirs"}, headers=read)
    assert theirs.status_code == 200
    refused = await api.client.request(method, path, json=body, headers=read)
    assert status_and_body(refused) == (412, {"error": "Changed since it was read"})
    assert (await api.client.get(path)).json() == theirs.json()
    current = {"if-match": theirs.headers["etag"]}
    assert (await api.client.request(method, path, json=body, headers=current)).status_code == 200


@on_each_database
async def test_one_of_several_concurrent_changes_of_the_same_state_applies(api: Api) -> None:
    path = f"/api/tasks/{(await api.add_task('0'))['id']}"
    read = {"if-match": (await api.client.get(path)).headers["etag"]}
    changes = [api.client.patch(path, json={"title": str(number)}, headers=read) for number in range(1, 9)]
    responses = await asyncio.gather(*changes)
    assert sorted(response.status_code for response in responses) == [200] + [412] * 7
    [applied] = [response.json() for response in responses if response.status_code == 200]
    assert (await api.client.get(path)).json() == applied


@on_each_database
async def test_deleting_a_task_deletes_its_comments(api: Api) -> None:
    path = f"/api/tasks/{(await api.add_task())['id']}"
    await api.client.post(f"{path}/comments", json={"body": "Done"})
    assert status_and_body(await api.client.delete(path)) == (200, {"success": True, "id": path.rpartition("/")[2]})
    assert (await api.client.get(path)).status_code == 404
    assert await api.execute(select(Comment)) == []


ASSIGN = "/api/tasks/assign"


async def test_only_tasks_with_another_assignee_change_and_each_has_an_activity(api: Api) -> None:
    user = await api.add_user()
    same = await api.add_task("same", assignee_id=user["id"])
    others = [await api.add_task(title) for title in ("one", "two")]
    ids = [task["id"] for task in (same, *others, others[0])]
    response = await api.client.post(ASSIGN, json={"task_ids": ids, "assignee_id": user["id"]})
    changed = sorted(task["id"] for task in others)
    assert status_and_body(response) == (200, {"success": True, "changed": changed})
    assert (await api.client.get(f"/api/tasks/{same['id']}")).json() == same
    for other in others:
        task = (await api.client.get(f"/api/tasks/{other['id']}")).json()
        assert task == other | {"assignee_id": user["id"], "updated_at": task["updated_at"]}
        assert task["updated_at"] > other["updated_at"]
    unassigned = await api.client.post(ASSIGN, json={"task_ids": [same["id"]], "assignee_id": None})
    assert unassigned.json()["changed"] == [same["id"]]
    found = [(item["subject_id"], item["changes"]) for item in await api.activities() if item["action"] == "updated"]
    assigned = [(task_id, {"assignee_id": {"before": None, "after": user["id"]}}) for task_id in changed]
    assert found[0] == (same["id"], {"assignee_id": {"before": user["id"], "after": None}})
    assert sorted(found[1:], key=lambda item: str(item[0])) == assigned


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"task_ids": []}, "task_ids"),
        ({"task_ids": [UNKNOWN_ID] * 201}, "task_ids"),
        ({"task_ids": ["1"]}, "task_ids"),
        ({"task_ids": UNKNOWN_ID}, "task_ids"),
        ({"assignee_id": "1"}, "assignee_id"),
        ({"assignee_id": UNKNOWN_ID}, "Unknown assignee"),
        ({"assignee_id": ...}, "assignee_id is required"),  # a forgotten field must not unassign 200 tasks
        ({"status": "done"}, "status"),
    ],
)
async def test_an_invalid_assignment_gets_a_400_and_changes_nothing(
    api: Api, change: dict[str, Any], text: str
) -> None:
    user, task = await api.add_user(), await api.add_task()
    body = {"task_ids": [task["id"]], "assignee_id": user["id"]} | change
    response = await api.client.post(ASSIGN, json={name: value for name, value in body.items() if value is not ...})
    assert response.status_code == 400
    assert text in response.json()["error"]
    assert (await api.client.get(f"/api/tasks/{task['id']}")).json() == task


async def test_with_one_unknown_task_none_is_assigned(api: Api) -> None:
    user, task = await api.add_user(), await api.add_task()
    response = await api.client.post(ASSIGN, json={"task_ids": [task["id"], UNKNOWN_ID], "assignee_id": user["id"]})
    assert status_and_body(response) == (404, {"error": "A task was not found, and none was changed"})
    assert (await api.client.get(f"/api/tasks/{task['id']}")).json() == task
    assert [item["action"] for item in await api.activities()] == ["created", "created"]


async def test_a_repeated_assignment_gets_the_stored_response(api: Api) -> None:
    user, task = await api.add_user(), await api.add_task()
    body, key = {"task_ids": [task["id"]], "assignee_id": user["id"]}, {"idempotency-key": "k"}
    first = await api.client.post(ASSIGN, json=body, headers=key)
    await api.client.patch(f"/api/tasks/{task['id']}", json={"assignee_id": None})
    assert (await api.client.post(ASSIGN, json=body, headers=key)).json() == first.json()
    assert (await api.client.get(f"/api/tasks/{task['id']}")).json()["assignee_id"] is None
