"""Lists of tasks: filters, search, and pages in every order."""

import base64
import itertools
import json
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import literal, select

from employee_api.tasks.schemas import TaskSort
from employee_api.tasks.search import LowerCase, unicode_lower
from shop_kit.employee_api import UNKNOWN_ID, Api, on_each_database, task_path


async def titles(api: Api, **parameters: Any) -> list[str]:
    """Return the titles of all tasks that match, from pages of two unless the limit is another one."""
    pages = await api.pages("/api/tasks", **{"limit": 2} | parameters)
    return [task["title"] for page in pages for task in page]


@on_each_database
async def test_tasks_must_match_every_filter(api: Api) -> None:
    user = await api.add_user()
    fields = {"assignee_id": user["id"], "status": "done", "priority": "high", "due_date": "2026-05-01"}
    wanted = await api.add_task("wanted", reporter_id=user["id"], **fields)
    await api.add_task("other reporter", **fields)
    for field, other in {"assignee_id": None, "status": "todo", "priority": "low", "due_date": "2026-05-02"}.items():
        await api.add_task(field, reporter_id=user["id"], **fields | {field: other})
    await api.add_task("no due date", reporter_id=user["id"], **fields | {"due_date": None})
    api.clock.now = datetime(2026, 4, 1, tzinfo=UTC)
    await api.add_task("other month", reporter_id=user["id"], **fields)
    filters = {
        "status": "done",
        "priority": "high",
        "assignee": user["id"],
        "reporter": user["id"],
        "due_before": "2026-05-02",
        "month": "2026-03",
        "q": "WANTED",
    }
    assert await api.pages("/api/tasks", **filters) == [[wanted]]
    for name in filters.keys() - {"q"}:
        without = {other: value for other, value in filters.items() if other not in (name, "q")}
        assert len(await titles(api, **without)) == (3 if name == "due_before" else 2), name
    assert await titles(api, unassigned="true") == ["assignee_id"]
    assert "assignee_id" not in await titles(api, unassigned="false")


WORDS = ["water", "WATER plants", "plants Water", "ate lan", "roof", "water roof", "  water\n", "bücher", "BÜCHER"]
WORDS += ["δφς", "ΔΦΣ", "жщя", "bu\u0308cher", "caf\u00e9", "100%", "a_b", "a/b", "_", "%"]
OTHER_WORDS = ["water fire", "100_", "a%b", "\\", "waterplants", "bucher", "'; DROP TABLE tasks; --"]


@on_each_database
async def test_a_search_finds_tasks_that_contain_every_word(api: Api) -> None:
    title = "Water the Plants, Bücher, ΔΦΣ"
    await api.add_task(title, description="On the ROOF; 100% of a_b a/b ЖЩЯ cafe\u0301")
    await api.add_task("Other")
    found = {words: await titles(api, q=words) for words in [*WORDS, *OTHER_WORDS]}
    assert [words for words, result in found.items() if result != ([title] if words in WORDS else [])] == []


@on_each_database
async def test_both_databases_have_the_same_lower_case_letters(api: Api) -> None:
    # Latin, Greek and Cyrillic; further letters depend on the Unicode version of each side.
    text = "".join(map(chr, range(1, 0x530)))
    async with api.engine.connect() as connection:
        assert (await connection.execute(select(LowerCase(literal(text))))).scalar_one() == unicode_lower(text)


RANKS = {"priority": ["low", "medium", "high", "urgent"], "status": ["todo", "in_progress", "review", "done"]}


async def add_tasks_to_sort(api: Api) -> None:
    new: list[dict[str, Any]] = [
        {"title": "b", "due_date": "2026-12-24", "priority": "medium", "status": "in_progress"},
        {"title": "A", "due_date": "2026-05-01", "priority": "high", "status": "review"},
        {"title": "ä", "due_date": "2026-04-01", "priority": "urgent", "status": "done"},
        {"title": "C", "priority": "low", "status": "review"},
        {"title": "a", "priority": "high", "status": "todo", "due_date": "2026-04-01"},
        {"title": "B"},
    ]
    first, *_ = [await api.add_task(**fields) for fields in new]
    await api.fetch(f"PATCH {task_path(first)}", {"description": "changed"})


def sort_titles(tasks: list[dict[str, Any]], sort: str, *, descending: bool) -> list[str]:
    def value(task: dict[str, Any]) -> Any:
        return RANKS[sort].index(task[sort]) if sort in RANKS else task[sort].lower()

    by_id = sorted(tasks, key=lambda task: str(task["id"]), reverse=descending)
    present = [task for task in by_id if task[sort] is not None]
    missing = [task for task in by_id if task[sort] is None]
    return [task["title"] for task in [*sorted(present, key=value, reverse=descending), *missing]]


@on_each_database
async def test_pages_in_every_order_contain_every_task_once(api: Api) -> None:
    await add_tasks_to_sort(api)
    [tasks] = await api.pages("/api/tasks")
    assert [task["title"] for task in tasks] == ["B", "a", "C", "ä", "A", "b"]  # the newest first
    for sort, order, limit in itertools.product(TaskSort, ("asc", "desc"), (1, 2)):
        expected = sort_titles(tasks, sort, descending=order == "desc")
        assert (sort, order, await titles(api, limit=limit, sort=sort, order=order)) == (sort, order, expected)


@on_each_database
async def test_pages_contain_every_task_once_with_equal_creation_times_and_later_tasks(api: Api) -> None:
    creation_time, found = api.clock.now, []
    for title in "0123456":
        api.clock.now = creation_time
        await api.add_task(title)
    cursor: dict[str, str] = {}
    for size in (3, 3, 1):
        page = (await api.client.get("/api/tasks", params={"limit": "3"} | cursor)).json()
        assert len(page["items"]) == size
        found += [task["title"] for task in page["items"]]
        cursor = {"cursor": page["next"]}
        await api.add_task("later")
    assert sorted(found) == list("0123456")


@on_each_database
async def test_a_page_after_a_task_that_was_deleted_meanwhile_continues_at_its_place(api: Api) -> None:
    for title in ("c", "d", "a", "b" + "\U0001d160" * 499):  # composing triples the last one's length
        await api.add_task(title)
    query = {"sort": "title", "order": "asc"}
    page = (await api.client.get("/api/tasks", params=query | {"limit": 2})).json()
    await api.fetch(f"DELETE {task_path(page['items'][1])}")
    assert await titles(api, **query, cursor=page["next"]) == ["c", "d"]


INVALID = (400, {"error": "cursor is invalid"})


async def test_a_cursor_of_another_order_is_refused(api: Api) -> None:
    await add_tasks_to_sort(api)
    cursor = (await api.fetch("GET /api/tasks?limit=1"))["next"]
    for other in ("sort=title", "sort=updated_at", "order=asc"):
        assert await api.answer(f"GET /api/tasks?cursor={cursor}&{other}") == INVALID


FORGED_VALUES: dict[str, list[Any]] = {
    "created_at": [None, "2026-03-14T15:09:26", "0001-01-01T00:00:00+14:00", 10**30, []],
    "due_date": ["2026-02-30", 10**30],
    "priority": [2**31, 10**19, "x"],
    "title": ["x\0", 1, None],
    "status": [-1],
}
FORGED = [(sort, [f"{sort} desc", value, UNKNOWN_ID]) for sort, values in FORGED_VALUES.items() for value in values]
OTHER_JSON = ["[]", "{}", "1", "null", '"x"', "[" * 2000, '["created_at desc", "2026-03-14T15:09:26Z", 1]']


async def test_a_forged_cursor_is_refused(api: Api) -> None:
    others = [("created_at", cursor) for cursor in [*OTHER_JSON, '["a", 1, "\\ud800"]']]
    for sort, cursor in [*((sort, json.dumps(forged)) for sort, forged in FORGED), *others]:
        encoded = base64.urlsafe_b64encode(cursor.encode()).decode()
        assert (cursor, await api.answer(f"GET /api/tasks?sort={sort}&cursor={encoded}")) == (cursor, INVALID)
