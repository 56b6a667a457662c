import asyncio
import uuid
from typing import Any

import pytest
from sqlalchemy import func, select

from employee_api.models import Comment
from shop_lab.world.employee_accounts import UNKNOWN_ID
from shop_lab.world.employee_api import Api

STATUSES = "must be 'todo', 'in_progress', 'review' or 'done'"
PRIORITIES = "must be 'low', 'medium', 'high' or 'urgent'"


async def test_a_task_has_defaults_for_every_field_but_its_title(api: Api) -> None:
    task = await api.add_task("Water the plants")
    assert str(uuid.UUID(task["id"])) == task.pop("id")
    assert task.pop("created_at") == task.pop("updated_at") == "2026-03-14T15:09:26.001000Z"
    assert task == {
        "title": "Water the plants",
        "description": "",
        "status": "todo",
        "priority": "medium",
        "assignee_id": None,
        "reporter_id": None,
        "due_date": None,
    }


async def test_a_created_task_can_be_read(api: Api) -> None:
    user = await api.add_user()
    more = {"status": "review", "priority": "urgent", "due_date": "2026-12-24", "description": "All\nof them"}
    task = await api.add_task("Water the plants", assignee_id=user["id"], reporter_id=user["id"], **more)
    assert (await api.client.get(f"/api/tasks/{task['id']}")).json() == task
    assert more.items() <= task.items()


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


async def test_a_patch_changes_only_what_it_names(api: Api) -> None:
    user = await api.add_user()
    task = await api.add_task("Water the plants", assignee_id=user["id"], due_date="2026-12-24")
    patch = {"status": "done", "assignee_id": None}
    changed = (await api.client.patch(f"/api/tasks/{task['id']}", json=patch)).json()
    assert changed == task | patch | {"updated_at": changed["updated_at"]}
    assert changed["updated_at"] > task["updated_at"]
    assert (await api.client.get(f"/api/tasks/{task['id']}")).json() == changed


async def test_a_change_records_an_activity_with_the_values_before_and_after(api: Api) -> None:
    user = await api.add_user()
    task = await api.add_task("Water the plants")
    await api.client.patch(f"/api/tasks/{task['id']}", json={"title": "Water all", "assignee_id": user["id"]})
    activity = (await api.activities())[0]
    assert (activity["action"], activity["subject_id"], activity["subject_name"]) == (
        "updated",
        task["id"],
        "Water all",
    )
    assert activity["changes"] == {
        "title": {"before": "Water the plants", "after": "Water all"},
        "assignee_id": {"before": None, "after": user["id"]},
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


async def test_a_task_has_the_same_entity_tag_when_it_is_created_changed_and_read(api: Api) -> None:
    created = await api.client.post("/api/tasks", json={"title": "Water the plants", "due_date": "2026-12-24"})
    path = f"/api/tasks/{created.json()['id']}"
    assert created.headers["etag"] == (await api.client.get(path)).headers["etag"]
    changed = await api.client.patch(path, json={"status": "done"})
    assert changed.headers["etag"] == (await api.client.get(path)).headers["etag"] != created.headers["etag"]


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
    task = await api.add_task()
    await api.client.post(f"/api/tasks/{task['id']}/comments", json={"body": "Done"})
    response = await api.client.delete(f"/api/tasks/{task['id']}")
    assert (response.status_code, response.json()) == (200, {"success": True, "id": task["id"]})
    assert (await api.client.get(f"/api/tasks/{task['id']}")).status_code == 404
    async with api.engine.connect() as connection:
        assert (await connection.execute(select(func.count()).select_from(Comment))).scalar_one() == 0


@pytest.mark.parametrize("task_id", [UNKNOWN_ID, "1"])
@pytest.mark.parametrize(
    ("method", "rest", "body"),
    [
        ("GET", "", None),
        ("PATCH", "", {"title": "x"}),
        ("DELETE", "", None),
        ("GET", "/comments", None),
        ("POST", "/comments", {"body": "x"}),
        ("GET", f"/comments/{UNKNOWN_ID}", None),
        ("PATCH", f"/comments/{UNKNOWN_ID}", {"body": "x"}),
        ("DELETE", f"/comments/{UNKNOWN_ID}", None),
    ],
)
async def test_an_unknown_task_is_a_404(api: Api, task_id: str, method: str, rest: str, body: Any) -> None:
    response = await api.client.request(method, f"/api/tasks/{task_id}{rest}", json=body)
    assert (response.status_code, response.json()) == (404, {"error": "Task not found"})


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


async def test_a_task_for_a_user_who_is_being_deleted_is_unassigned_or_refused(api: Api) -> None:
    user = await api.add_user()
    tasks = [api.client.post("/api/tasks", json={"title": "x", "assignee_id": user["id"]}) for _ in range(10)]
    *created, deleted = await asyncio.gather(*tasks, api.client.delete(f"/api/auth/users/{user['id']}"))
    assert deleted.status_code == 200
    assert {response.status_code for response in created} <= {201, 400}
    assert all(task["assignee_id"] is None for task in (await api.client.get("/api/tasks")).json()["items"])
