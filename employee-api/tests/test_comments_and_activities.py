import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import pytest

from shop_kit.employee_api import UNKNOWN_ID, Api, StartApi, on_each_database, path, started_with, status_and_body

EDIT = {"body": "Edited"}


async def add_comment(api: Api, body: str = "Done", **more: Any) -> str:
    """Comment on a new task, and return the path of the comment."""
    path = f"/api/tasks/{(await api.add_task())['id']}/comments"
    response = await api.client.post(path, json={"body": body} | more)
    return f"{path}/{response.json()['id']}"


async def test_comments_are_listed_newest_first_and_have_a_known_author_or_none(api: Api) -> None:
    user, task = await api.add_user(), await api.add_task()
    path = f"/api/tasks/{task['id']}/comments"
    first = await api.client.post(path, json={"body": "First", "author_id": user["id"]})
    second = await api.client.post(path, json={"body": "Second"})
    assert (first.status_code, first.json()["author_id"]) == (201, user["id"])
    refused = await api.client.post(path, json={"body": "x", "author_id": UNKNOWN_ID})
    assert (refused.status_code, refused.json()) == (400, {"error": "Unknown author"})
    assert (await api.pages(path)) == [[second.json(), first.json()]]


async def test_an_edited_comment_has_the_new_text_and_the_time_of_the_edit(api: Api) -> None:
    path = await add_comment(api, "Dnoe")
    before = (await api.client.get(path)).json()
    assert (await api.client.patch(path, json={"body": "Dnoe"})).json() == before  # the same text is no edit
    invalid: list[Any] = [{}, {"body": ""}, {"body": None}, {"body": "x\0"}, {"author_id": UNKNOWN_ID}, []]
    for patch in invalid:
        assert (await api.client.patch(path, json=patch)).status_code == 400
    assert [item["action"] for item in await api.activities()] == ["commented", "created"]
    edited = (await api.client.patch(path, json={"body": "Done"})).json()
    assert edited == before | {"body": "Done", "edited_at": edited["edited_at"]}
    assert before["edited_at"] is None
    assert edited["edited_at"] > before["created_at"]
    assert (await api.client.get(path)).json() == edited


async def test_a_deleted_comment_is_gone_and_activities_do_not_preserve_its_text(api: Api) -> None:
    path = await add_comment(api, "a secret")
    comment_id = path.rpartition("/")[2]
    await api.client.patch(path, json={"body": "no secret"})
    assert status_and_body(await api.client.delete(path)) == (200, {"success": True, "id": comment_id})
    assert (await api.client.get(path)).status_code == 404
    assert await api.pages(path.rpartition("/")[0]) == [[]]
    deleted, edited = (await api.activities())[:2]
    assert [edited["action"], deleted["action"]] == ["comment_edited", "comment_deleted"]
    assert edited["changes"] == {"comment_id": {"before": comment_id, "after": comment_id}}
    assert deleted["changes"] == {"comment_id": {"before": comment_id, "after": None}}
    assert "secret" not in str(await api.activities())


@pytest.mark.parametrize(("method", "body"), [("GET", None), ("PATCH", {"body": "x"}), ("DELETE", None)])
async def test_an_unknown_comment_and_one_on_another_task_are_a_404(api: Api, method: str, body: Any) -> None:
    path, other = await add_comment(api), await api.add_task()
    for comment_id in (UNKNOWN_ID, "1", path.rpartition("/")[2]):
        response = await api.client.request(method, f"/api/tasks/{other['id']}/comments/{comment_id}", json=body)
        assert (response.status_code, response.json()) == (404, {"error": "Comment not found"})
    assert (await api.client.get(path)).json()["body"] == "Done"


ROLES = ("employee", "employee", "manager")
AUTHOR, OTHER, MANAGER = range(3)


@pytest.mark.parametrize("who", [OTHER, MANAGER, AUTHOR])
async def test_only_the_author_edits_a_comment_and_management_may_delete_it(start_api: StartApi, who: int) -> None:
    async with started_with(start_api, "enforce", *ROLES) as (api, users):
        comment = await add_comment(api)
        reader = await api.log_in(users[who]["email"])
        before = (await api.client.get(comment)).json()
        edited = await api.client.patch(comment, json=EDIT, headers=reader)
        assert edited.status_code == (200 if who == AUTHOR else 403)
        if who != AUTHOR:
            assert edited.json() == {"error": "Only its author may do this"}
            assert (await api.client.get(comment)).json() == before
        assert (await api.client.delete(comment, headers=reader)).status_code == (403 if who == OTHER else 200)


async def test_a_comment_without_an_author_can_not_be_edited(start_api: StartApi) -> None:
    async with started_with(start_api, "enforce", *ROLES) as (api, users):
        comment = await add_comment(api)
        manager, other = [await api.log_in(users[who]["email"]) for who in (MANAGER, OTHER)]
        assert (await api.client.delete(path(users[AUTHOR]), headers=manager)).status_code == 200
        assert (await api.client.get(comment, headers=other)).json()["author_id"] is None
        assert (await api.client.patch(comment, json=EDIT, headers=other)).status_code == 403


@on_each_database
async def test_activities_are_filtered_by_month_subject_and_action(api: Api) -> None:
    task, _ = await api.add_task("one"), await api.add_task("other")
    await api.client.patch(f"/api/tasks/{task['id']}", json={"title": "changed"})
    api.clock.now = datetime(2026, 4, 1, tzinfo=UTC)
    await api.add_task("April")
    for filters, names in (
        ({"month": "2026-04"}, ["April"]),
        ({"month": "2026-03"}, ["changed", "other", "one"]),
        ({"subject": task["id"]}, ["changed", "one"]),
        ({"subject": task["id"], "action": "created"}, ["one"]),
        ({"subject": UNKNOWN_ID}, []),
        ({"action": "created"}, ["April", "other", "one"]),
        ({"action": "CREATED"}, []),
    ):
        assert [item["subject_name"] for item in await api.activities(**filters)] == names
    for name in ("subject", "actor", "action"):
        for value in ("x\0", "x" * 1001):
            response = await api.client.get("/api/activities", params={name: value})
            assert (response.status_code, response.json()["error"].split()[0]) == (400, name)


def test_the_activities_of_a_subject_are_read_in_the_order_of_an_index(sqlite_url: str) -> None:
    query = "SELECT * FROM activities WHERE subject_id = ? ORDER BY created_at DESC, id DESC LIMIT 51"
    with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as connection:
        plan = connection.execute(f"EXPLAIN QUERY PLAN {query}", (UNKNOWN_ID,)).fetchall()
    assert [step[3] for step in plan] == [
        "SEARCH activities USING INDEX ix_activities_subject_id_created_at_id (subject_id=?)"
    ]
