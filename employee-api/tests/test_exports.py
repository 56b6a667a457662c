import asyncio
import csv
import io
import uuid
from datetime import UTC, datetime

import httpx2
import pytest
from opentelemetry.trace import NoOpTracer
from sqlalchemy import insert

from employee_api.csv_queries import Kind
from employee_api.errors import TooManyExports
from employee_api.exports import CHUNK_BYTES, Exports
from employee_api.models import Task
from shop_testkit.employee_api import Api, Start

COLUMNS = {
    "tasks": "id,title,description,status,priority,assignee_id,assignee_name,reporter_id,reporter_name,due_date,"
    "created_at,updated_at",
    "users": "id,name,email,role,dept,created_at",
    "activities": "id,created_at,actor_id,actor_name,action,subject_type,subject_id,subject_name,changes",
}


async def export(api: Api, kind: str, month: str | None = None) -> httpx2.Response:
    answer = await api.client.get(f"/api/export/{kind}", params={"month": month} if month else {})
    assert answer.status_code == 200, answer.text
    return answer


def rows(answer: httpx2.Response) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(answer.content.decode(), newline="")))


async def fill(api: Api, count: int) -> None:
    """Many tasks, at one moment each pair of them."""
    values = {"description": "x" * 40, "status": "todo", "priority": "low"}
    moments = [datetime(2026, 1, 1, tzinfo=UTC).replace(microsecond=number // 2) for number in range(count)]
    tasks = [
        values | {"id": uuid.uuid4(), "title": f"Task {number}", "created_at": moment, "updated_at": moment}
        for number, moment in enumerate(moments)
    ]
    async with api.engine.begin() as connection:
        await connection.execute(insert(Task), tasks)


@pytest.mark.parametrize("kind", list(COLUMNS))
@pytest.mark.parametrize(("month", "name"), [(None, "all"), ("2026-03", "2026-03")])
async def test_an_export_is_a_csv_file_whose_name_tells_kind_and_month(
    api: Api, kind: str, month: str | None, name: str
) -> None:
    answer = await export(api, kind, month)
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert answer.headers["content-disposition"] == f'attachment; filename="{kind}-{name}.csv"'


@pytest.mark.parametrize("kind", list(COLUMNS))
async def test_an_export_of_nothing_is_a_header(api: Api, kind: str) -> None:
    assert (await export(api, kind)).content.decode() == COLUMNS[kind] + "\r\n"


async def test_tasks_are_exported_with_names_beside_ids(api: Api) -> None:
    ada, bob = await api.user("Ada"), await api.user("Bob")
    task = await api.task("Water", assignee_id=ada["id"], reporter_id=bob["id"], due_date="2026-12-24")
    [row] = rows(await export(api, "tasks"))
    assert row == task | {"assignee_name": "Ada", "reporter_name": "Bob"}


async def test_what_a_task_does_not_have_is_an_empty_cell(api: Api) -> None:
    await api.task("Water")
    [row] = rows(await export(api, "tasks"))
    assert {row[name] for name in ("assignee_id", "assignee_name", "due_date", "description")} == {""}


async def test_users_are_exported_without_their_hashes(api: Api) -> None:
    user = await api.user("Ada", dept="Ops", role="cto")
    answer = await export(api, "users")
    [row] = rows(answer)
    assert {name: row[name] for name in ("id", "name", "email", "role", "dept")}.items() <= user.items()
    assert b"argon2" not in answer.content


async def test_activities_are_exported_with_what_changed_as_json(api: Api) -> None:
    task = await api.task("Water")
    await api.client.patch(f"/api/tasks/{task['id']}", json={"status": "done"})
    row = rows(await export(api, "activities"))[-1]
    assert (row["action"], row["subject_id"], row["subject_name"]) == ("updated", task["id"], "Water")
    assert row["changes"] == '{"status": {"before": "todo", "after": "done"}}'


@pytest.mark.parametrize("text", ["a,b", 'say "x"', "two\nlines", "two\r\nlines", " spaces ", "é \U0001f600", "x"])
async def test_any_text_comes_back_as_it_went_in(api: Api, text: str) -> None:
    await api.task(text)
    assert [row["title"] for row in rows(await export(api, "tasks"))] == [text]


async def test_every_record_ends_with_a_line_break_of_the_standard(api: Api) -> None:
    await api.task("one")
    await api.task("two\nlines")
    content = (await export(api, "tasks")).content
    assert content.count(b"\r\n") == 3
    assert content.endswith(b"\r\n")
    assert b"two\nlines" in content


@pytest.mark.parametrize("start_of_formula", ["=", "+", "-", "@", "\t", "\r", "\uff1d", "\uff0b", "\uff0d", "\uff20"])
async def test_formulas_are_defused_in_free_text(api: Api, start_of_formula: str) -> None:
    text = f"{start_of_formula}1+1"
    user = await api.user(text, dept=text, role=text, email=f"{text}@x")
    await api.task(text, description=text, assignee_id=user["id"])
    [exported] = rows(await export(api, "users"))
    assert {exported[name] for name in ("name", "dept", "role")} == {f"'{text}"}
    assert exported["email"] == f"'{text}@x"
    [task] = rows(await export(api, "tasks"))
    assert (task["title"], task["description"], task["assignee_name"]) == (f"'{text}", f"'{text}", f"'{text}")
    assert {row["subject_name"] for row in rows(await export(api, "activities"))} == {f"'{text}"}


async def test_formulas_can_be_left_as_they_are(start: Start) -> None:
    async with start(csv_defuse_formulas=False) as api:
        await api.task("=1+1")
        assert [row["title"] for row in rows(await export(api, "tasks"))] == ["=1+1"]


async def test_a_month_is_one_of_utc_from_its_first_moment_to_its_last(api: Api) -> None:
    edges = ("2026-01-31T23:59:59.999999", "2026-02-01T00:00:00", "2026-02-28T23:59:59.999999", "2026-03-01T00:00:00")
    for moment in edges:
        await task_at(api, moment)
    titles = [row["title"] for row in rows(await export(api, "tasks", "2026-02"))]
    assert titles == ["2026-02-01T00:00:00", "2026-02-28T23:59:59.999999"]
    assert len(rows(await export(api, "tasks"))) == 4


async def task_at(api: Api, moment: str) -> None:
    at = datetime.fromisoformat(moment).replace(tzinfo=UTC)
    values = {"id": uuid.uuid4(), "title": moment, "description": "", "status": "todo", "priority": "low"}
    async with api.engine.begin() as connection:
        await connection.execute(insert(Task), [values | {"created_at": at, "updated_at": at}])


@pytest.mark.parametrize("month", ["0001-01", "9999-12"])
async def test_the_first_and_the_last_month_there_are_hold_nothing(api: Api, month: str) -> None:
    await api.task()
    assert rows(await export(api, "tasks", month)) == []
    assert (await api.client.get(f"/api/tasks?month={month}")).json()["items"] == []


async def test_rows_come_in_the_same_order_each_time_the_oldest_first(api: Api) -> None:
    await fill(api, 400)
    first, second = rows(await export(api, "tasks")), rows(await export(api, "tasks"))
    assert first == second == sorted(first, key=lambda row: (row["created_at"], row["id"]))


async def test_a_long_export_is_complete_and_comes_in_chunks(api: Api) -> None:
    await fill(api, 5000)
    exports = Exports(api.engine, NoOpTracer(), defuse=True)
    chunks = [chunk async for chunk in exports.stream(Kind.TASKS, None)]
    assert b"".join(chunks).count(b"\r\n") == 5001
    assert max(len(chunk) for chunk in chunks) < 2 * CHUNK_BYTES
    assert (await export(api, "tasks")).content == b"".join(chunks)


async def test_an_export_that_is_given_up_frees_its_connection(api: Api) -> None:
    await fill(api, 5000)
    exports = Exports(api.engine, NoOpTracer(), defuse=True)
    for _ in range(20):  # more than may run at once
        chunks = exports.stream(Kind.TASKS, None)
        await anext(chunks)
        await chunks.aclose()
    assert exports.running == 0


async def test_more_exports_at_once_than_there_is_room_for_are_refused(api: Api) -> None:
    exports = Exports(api.engine, NoOpTracer(), defuse=True)
    await fill(api, 3000)
    streams = [exports.stream(Kind.TASKS, None) for _ in range(8)]
    for stream in streams:
        await anext(stream)
    with pytest.raises(TooManyExports):
        await anext(exports.stream(Kind.TASKS, None))
    for stream in streams:
        await stream.aclose()


async def test_other_requests_are_served_while_an_export_waits_for_its_reader(api: Api) -> None:
    await fill(api, 5000)
    chunks = Exports(api.engine, NoOpTracer(), defuse=True).stream(Kind.TASKS, None)
    await anext(chunks)
    async with asyncio.timeout(30):
        await api.user()
        assert (await api.client.get("/api/tasks")).status_code == 200
    await chunks.aclose()


async def test_head_tells_the_headers_alone(api: Api) -> None:
    answer = await api.client.head("/api/export/users")
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-disposition"] == 'attachment; filename="users-all.csv"'


async def test_a_failure_before_the_first_byte_is_a_500(api: Api) -> None:
    async with api.engine.begin() as connection:
        await connection.exec_driver_sql("ALTER TABLE tasks RENAME TO gone")
    try:
        answer = await api.client.get("/api/export/tasks")
        assert (answer.status_code, answer.json()) == (500, {"error": "Internal server error"})
    finally:
        async with api.engine.begin() as connection:
            await connection.exec_driver_sql("ALTER TABLE gone RENAME TO tasks")
