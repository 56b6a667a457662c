import asyncio
import uuid
from typing import Any

import pytest
from sqlalchemy import select

from employee_api.models import Comment
from shop_kit.employee_api import UNKNOWN_ID, Api, on_each_database, task_path

ASSIGN = "POST /api/tasks/assign"


async def test_a_created_task_can_be_read_and_has_defaults_for_every_field_but_its_title(api: Api) -> None:
    task = await api.add_task("Water the plants")
    assert str(uuid.UUID(task["id"])) == task["id"]
    assert task["created_at"] == task["updated_at"] == "2026-03-14T15:09:26.001000Z"
    defaults = {"description": "", "status": "todo", "priority": "medium", "due_date": None}
    assert task.items() >= (defaults | {"assignee_id": None, "reporter_id": None}).items()
    user = await api.add_user()
    more = {"status": "review", "priority": "urgent", "due_date": "2026-12-24", "description": "All\nof them"}
    more |= {"assignee_id": user["id"], "reporter_id": user["id"]}
    task = await api.add_task("Water the plants", **more)
    assert await api.fetch(f"GET {task_path(task)}") == task
    assert task.items() >= more.items()


async def test_a_patch_changes_only_what_it_names_and_records_the_values_before_and_after(api: Api) -> None:
    user = await api.add_user()
    task = await api.add_task("Water the plants", assignee_id=user["id"], due_date="2026-12-24")
    patch = {"title": "Water all", "assignee_id": None}
    for without_effect in ({}, {"status": "todo"}):
        assert await api.fetch(f"PATCH {task_path(task)}", without_effect) == task
    changed = await api.fetch(f"PATCH {task_path(task)}", patch)
    assert changed == task | patch | {"updated_at": changed["updated_at"]} == await api.fetch(f"GET {task_path(task)}")
    assert changed["updated_at"] > task["updated_at"]
    activity, *earlier = await api.activities()
    assert [item["action"] for item in earlier] == ["created", "created"]
    recorded = ("updated", task["id"], "Water all")
    assert (activity["action"], activity["subject_id"], activity["subject_name"]) == recorded
    assert activity["changes"] == {
        "title": {"before": "Water the plants", "after": "Water all"},
        "assignee_id": {"before": user["id"], "after": None},
    }


@on_each_database
async def test_concurrent_patches_all_apply_and_are_recorded_in_the_order_they_applied(api: Api) -> None:
    path = task_path(await api.add_task("0"))
    patches = [{"status": "done"}, {"priority": "low"}, {"description": "More"}]
    titles = [{"title": str(number)} for number in range(1, 9)]
    await asyncio.gather(*(api.fetch(f"PATCH {path}", patch) for patch in patches + titles))
    final = await api.fetch(f"GET {path}")
    assert all(patch.items() <= final.items() for patch in patches)
    changes = [item["changes"]["title"] for item in await api.activities() if "title" in item["changes"]]
    assert {change["before"] for change in changes} == {None, *(str(number) for number in range(9))} - {final["title"]}


@pytest.mark.parametrize(("method", "body"), [("PATCH", {"title": "Mine"}), ("DELETE", None)])
async def test_a_change_of_an_outdated_task_is_refused(api: Api, method: str, body: Any) -> None:
    path = task_path(await api.add_task())
    read = {"if-match": (await api.client.get(path)).headers["etag"]}
    theirs = await api.client.patch(path, json={"title": "Theirs"}, headers=read)
    assert await api.answer(f"{method} {path}", body, read) == (412, {"error": "Changed since it was read"})
    assert await api.fetch(f"GET {path}") == theirs.json()
    await api.fetch(f"{method} {path}", body, {"if-match": theirs.headers["etag"]})


@on_each_database
async def test_one_of_several_concurrent_changes_of_the_same_state_applies(api: Api) -> None:
    path = task_path(await api.add_task("0"))
    read = {"if-match": (await api.client.get(path)).headers["etag"]}
    changes = [api.answer(f"PATCH {path}", {"title": str(number)}, read) for number in range(1, 9)]
    answers = await asyncio.gather(*changes)
    assert sorted(status for status, _ in answers) == [200] + [412] * 7
    assert (200, await api.fetch(f"GET {path}")) in answers


@on_each_database
async def test_deleting_a_task_deletes_its_comments(api: Api) -> None:
    task = await api.add_task()
    await api.fetch(f"POST {task_path(task)}/comments", {"body": "Done"})
    assert await api.fetch(f"DELETE {task_path(task)}") == {"success": True, "id": task["id"]}
    assert (await api.answer(f"GET {task_path(task)}"))[0] == 404
    assert await api.execute(select(Comment)) == []


async def test_only_tasks_with_another_assignee_change_and_each_has_an_activity(api: Api) -> None:
    user = await api.add_user()
    same = await api.add_task("same", assignee_id=user["id"])
    others = [await api.add_task(title) for title in ("one", "two")]
    ids = [task["id"] for task in (same, *others, others[0])]
    changed = sorted(task["id"] for task in others)
    assigned = await api.fetch(ASSIGN, {"task_ids": ids, "assignee_id": user["id"]})
    assert assigned == {"success": True, "changed": changed}
    assert await api.fetch(f"GET {task_path(same)}") == same
    for other in others:
        task = await api.fetch(f"GET {task_path(other)}")
        assert task == other | {"assignee_id": user["id"], "updated_at": task["updated_at"]}
        assert task["updated_at"] > other["updated_at"]
    assert (await api.fetch(ASSIGN, {"task_ids": [same["id"]], "assignee_id": None}))["changed"] == [same["id"]]
    found = [(item["subject_id"], item["changes"]) for item in await api.activities() if item["action"] == "updated"]
    assert found[0] == (same["id"], {"assignee_id": {"before": user["id"], "after": None}})
    recorded = [(task_id, {"assignee_id": {"before": None, "after": user["id"]}}) for task_id in changed]
    assert sorted(found[1:], key=lambda item: str(item[0])) == recorded


async def test_with_one_unknown_task_none_is_assigned(api: Api) -> None:
    user, task = await api.add_user(), await api.add_task()
    refused = await api.answer(ASSIGN, {"task_ids": [task["id"], UNKNOWN_ID], "assignee_id": user["id"]})
    assert refused == (404, {"error": "A task was not found, and none was changed"})
    assert await api.fetch(f"GET {task_path(task)}") == task
    assert [item["action"] for item in await api.activities()] == ["created", "created"]
