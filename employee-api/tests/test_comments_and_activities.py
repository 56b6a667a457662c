from datetime import UTC, datetime

import pytest

from shop_kit.databases import plan_on_sqlite
from shop_kit.employee_api import UNKNOWN_ID, Api, StartApi, on_each_database, path, started_with, task_path

EDIT = {"body": "Edited"}


async def add_comment(api: Api, body: str = "Done") -> str:
    """Comment on a new task, and return the path of the comment."""
    comments = f"{task_path(await api.add_task())}/comments"
    return f"{comments}/{(await api.fetch(f'POST {comments}', {'body': body}))['id']}"


async def test_comments_are_listed_newest_first_and_have_a_known_author_or_none(api: Api) -> None:
    user, comments = await api.add_user(), f"{task_path(await api.add_task())}/comments"
    first = await api.fetch(f"POST {comments}", {"body": "First", "author_id": user["id"]})
    second = await api.fetch(f"POST {comments}", {"body": "Second"})
    assert (first["author_id"], second["author_id"]) == (user["id"], None)
    refused = await api.answer(f"POST {comments}", {"body": "x", "author_id": UNKNOWN_ID})
    assert refused == (400, {"error": "Unknown author"})
    assert await api.pages(comments) == [[second, first]]


async def test_an_edited_comment_has_the_new_text_and_the_time_of_the_edit(api: Api) -> None:
    comment = await add_comment(api, "Dnoe")
    before = await api.fetch(f"GET {comment}")
    assert await api.fetch(f"PATCH {comment}", {"body": "Dnoe"}) == before  # the same text is no edit
    assert [item["action"] for item in await api.activities()] == ["commented", "created"]
    edited = await api.fetch(f"PATCH {comment}", {"body": "Done"})
    assert edited == before | {"body": "Done", "edited_at": edited["edited_at"]} == await api.fetch(f"GET {comment}")
    assert before["edited_at"] is None
    assert edited["edited_at"] > before["created_at"]


async def test_a_deleted_comment_is_gone_and_activities_do_not_preserve_its_text(api: Api) -> None:
    comment = await add_comment(api, "a secret")
    comments, _, comment_id = comment.rpartition("/")
    await api.fetch(f"PATCH {comment}", {"body": "no secret"})
    assert await api.fetch(f"DELETE {comment}") == {"success": True, "id": comment_id}
    assert await api.pages(comments) == [[]]
    deleted, edited = (await api.activities())[:2]
    assert [edited["action"], deleted["action"]] == ["comment_edited", "comment_deleted"]
    assert edited["changes"] == {"comment_id": {"before": comment_id, "after": comment_id}}
    assert deleted["changes"] == {"comment_id": {"before": comment_id, "after": None}}
    assert "secret" not in str(await api.activities())


async def test_an_unknown_comment_and_one_on_another_task_are_a_404(api: Api) -> None:
    comment, other = await add_comment(api), await api.add_task()
    for comment_id in (UNKNOWN_ID, "1", comment.rpartition("/")[2]):
        for method in ("GET", "PATCH", "DELETE"):
            answer = await api.answer(f"{method} {task_path(other)}/comments/{comment_id}", EDIT)
            assert answer == (404, {"error": "Comment not found"})
    assert (await api.fetch(f"GET {comment}"))["body"] == "Done"


@pytest.mark.parametrize(("who", "edits", "deletes"), [(1, 403, 403), (2, 403, 200), (0, 200, 200)])
async def test_only_the_author_edits_a_comment_and_management_may_delete_it(
    start_api: StartApi, who: int, edits: int, deletes: int
) -> None:
    async with started_with(start_api, "enforce", "employee", "employee", "manager") as (api, users):
        comment = await add_comment(api)
        before = await api.fetch(f"GET {comment}")
        reader = await api.log_in(users[who]["email"])
        status, answer = await api.answer(f"PATCH {comment}", EDIT, reader)
        assert status == edits
        if status == 403:
            assert answer == {"error": "Only its author may do this"}
            assert await api.fetch(f"GET {comment}") == before
        assert (await api.answer(f"DELETE {comment}", headers=reader))[0] == deletes


async def test_a_comment_without_an_author_can_not_be_edited(start_api: StartApi) -> None:
    async with started_with(start_api, "enforce", "employee", "manager") as (api, [author, manager]):
        comment = await add_comment(api)
        api.client.headers.update(await api.log_in(manager["email"]))
        await api.fetch(f"DELETE {path(author)}")
        assert (await api.fetch(f"GET {comment}"))["author_id"] is None
        assert (await api.answer(f"PATCH {comment}", EDIT))[0] == 403


@on_each_database
async def test_activities_are_filtered_by_month_subject_and_action(api: Api) -> None:
    task, _ = await api.add_task("one"), await api.add_task("other")
    await api.fetch(f"PATCH {task_path(task)}", {"title": "changed"})
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


def test_the_activities_of_a_subject_are_read_in_the_order_of_an_index(sqlite_url: str) -> None:
    query = "SELECT * FROM activities WHERE subject_id = :id ORDER BY created_at DESC, id DESC LIMIT 51"
    (step,) = plan_on_sqlite(sqlite_url, query, {"id": UNKNOWN_ID})
    assert step == "SEARCH activities USING INDEX ix_activities_subject_id_created_at_id (subject_id=?)"
