import csv
import io
import re
import uuid
from datetime import UTC, datetime
from importlib import resources
from zoneinfo import ZoneInfo

import httpx2
import pytest
from opentelemetry.trace import NoOpTracer
from sqlalchemy import insert

from employee_api.errors import TooManyExports
from employee_api.exports import handlers
from employee_api.exports.queries import Table
from employee_api.exports.streaming import CHUNK_BYTES, CsvExporter
from employee_api.models import Task
from shop_kit.employee_api import Api, StartApi, on_each_database, task_path

pytestmark = on_each_database  # each has its own statements and its own way to send rows

COLUMNS = {
    "tasks": "id,title,description,status,priority,assignee_id,assignee_name,reporter_id,reporter_name,due_date,"
    "created_at,updated_at",
    "users": "id,name,email,role,dept,created_at",
    "activities": "id,created_at,actor_id,actor_name,action,subject_type,subject_id,subject_name,changes",
}


async def export(api: Api, table: str, **parameters: str) -> httpx2.Response:
    response = await api.client.get(f"/api/export/{table}", params=parameters)
    assert response.status_code == 200, response.text
    return response


def rows(response: httpx2.Response) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(response.content.decode(), newline="")))


async def insert_tasks(api: Api, *timestamps: str) -> None:
    """Insert tasks with these creation times, in UTC, as their titles; by default 3,000, two at each time."""
    timestamps = timestamps or tuple(f"2026-01-01T00:00:00.{number // 2:06}" for number in range(3000))
    common = {"description": "x" * 40, "status": "todo", "priority": "low"}
    moments = [datetime.fromisoformat(timestamp).replace(tzinfo=UTC) for timestamp in timestamps]
    tasks = [
        common | {"id": uuid.uuid4(), "title": title, "created_at": moment, "updated_at": moment}
        for title, moment in zip(timestamps, moments, strict=True)
    ]
    async with api.engine.begin() as connection:
        await connection.execute(insert(Task), tasks)


async def test_an_export_without_rows_is_a_csv_file_with_a_header(api: Api) -> None:
    for table, columns in COLUMNS.items():
        for month, name in (({}, "all"), ({"month": "2026-03"}, "2026-03")):
            response = await export(api, table, **month)
            assert response.content.decode() == columns + "\r\n"
            assert response.headers["content-type"] == "text/csv; charset=utf-8"
            assert response.headers["content-disposition"] == f'attachment; filename="{table}-{name}.csv"'


async def test_tables_are_exported_with_user_names_and_ids_or_empty_cells_and_without_hashes(api: Api) -> None:
    ada, bob = await api.add_user("Ada", dept="Ops", role="cto"), await api.add_user("Bob")
    task = await api.add_task("Water", assignee_id=ada["id"], reporter_id=bob["id"], due_date="2026-12-24")
    await api.add_task("Bare")
    row, bare = rows(await export(api, "tasks"))
    assert row == task | {"assignee_name": "Ada", "reporter_name": "Bob"}
    assert {bare[name] for name in ("assignee_id", "assignee_name", "due_date", "description")} == {""}
    users = rows(await export(api, "users"))
    assert {name: users[0][name] for name in ("id", "name", "email", "role", "dept")}.items() <= ada.items()
    assert "argon2" not in str(users)
    await api.fetch(f"PATCH {task_path(task)}", {"status": "done"})
    activity = rows(await export(api, "activities"))[-1]
    assert (activity["action"], activity["subject_id"], activity["subject_name"]) == ("updated", task["id"], "Water")
    assert activity["changes"] == '{"status": {"before": "todo", "after": "done"}}'


FORMULAS = ["=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20", "  =", "\u00a0-", " \u3000\t"]


async def test_formulas_are_defused_in_free_text_unless_configured(start_api: StartApi) -> None:
    async with start_api() as api, start_api(csv_defuse_formulas=False) as other:
        texts = [f"{start}1+1" for start in FORMULAS]
        for number, text in enumerate(texts):
            user = await api.add_user(text, dept=text, role=text, email=f"{text}{number}@x")
            await api.add_task(text, description=text, assignee_id=user["id"])
        defused = [f"'{text}" for text in texts]
        users, tasks = [rows(await export(api, table)) for table in ("users", "tasks")]
        columns = [[row[name] for row in users] for name in ("name", "dept", "role")]
        columns += [[row[name] for row in tasks] for name in ("title", "description", "assignee_name")]
        assert columns == [defused] * 6
        assert [row["email"] for row in users] == [f"{text}{number}@x" for number, text in enumerate(defused)]
        assert {row["subject_name"] for row in rows(await export(api, "activities"))} == set(defused)
        assert [row["title"] for row in rows(await export(other, "tasks"))] == texts


TEXTS = ["plain", "a,b", 'say "x"', "two\nlines", "two\r\nlines", " spaces ", "a=b", "\u00e9 \U0001f600"]
TEXTS += [f"{start}a{other}=1+1" for start in ("", "=", "\t") for other in (",", ";", "\t", '"', "\r\n")]


async def test_any_text_is_exported_in_the_cells_of_the_requested_separator(api: Api) -> None:
    for text in TEXTS:
        await api.add_task(text)
    plain = (await export(api, "tasks", bom="false")).content
    assert (await export(api, "tasks", bom="true")).content == b"\xef\xbb\xbf" + plain
    for separator, character in ((",", ","), (";", ";"), ("tab", "\t")):
        response = await export(api, "tasks", separator=separator)
        assert response.content.startswith(COLUMNS["tasks"].replace(",", character).encode() + b"\r\n")
        assert response.content.endswith(b"\r\n")
        header, *found = csv.reader(io.StringIO(response.content.decode(), newline=""), delimiter=character)
        assert {len(row) for row in found} == {len(header)}
        # Also defuse what would begin a cell for a program that expects another separator.
        defused = [re.sub("([,;\t\n])=1", r"\1'=1", f"'{text}" if text[0] in "=\t" else text) for text in TEXTS]
        assert [row[1] for row in found] == defused
        # Every record ends with CRLF, and some titles have one.
        assert response.content.count(b"\r\n") == 1 + len(TEXTS) + sum("\r\n" in text for text in TEXTS)
        assert (response.content == plain) is (separator == ",")


@pytest.mark.parametrize(
    ("parameters", "edges", "exported"),
    [
        (
            {"month": "2026-02"},
            ("2026-01-31T23:59:59.999999", "2026-02-01T00:00:00", "2026-02-28T23:59:59.999999", "2026-03-01T00:00:00"),
            ("2026-02-01T00:00:00.000000Z", "2026-02-28T23:59:59.999999Z"),
        ),
        (  # Clocks in Berlin were set forward at 01:00 UTC on 29 March 2026.
            {"month": "2026-03", "tz": "Europe/Berlin"},
            ("2026-02-28T22:59:59.999999", "2026-02-28T23:00:00", "2026-03-31T21:59:59", "2026-03-31T22:00:00"),
            ("2026-03-01T00:00:00.000000+01:00", "2026-03-31T23:59:59.000000+02:00"),
        ),
    ],
)
async def test_months_and_timestamps_are_in_utc_or_the_requested_time_zone(
    api: Api, parameters: dict[str, str], edges: tuple[str, ...], exported: tuple[str, ...]
) -> None:
    await insert_tasks(api, *edges)
    found = [(row["title"], row["created_at"]) for row in rows(await export(api, "tasks", **parameters))]
    assert found == list(zip(edges[1:3], exported, strict=True))
    assert len(rows(await export(api, "tasks"))) == 4


async def test_timestamps_have_the_offset_of_their_zone(api: Api) -> None:
    await insert_tasks(api, "2026-01-01T03:00:00.500000")
    for zone, expected in {
        "UTC": "2026-01-01T03:00:00.500000Z",
        "Europe/London": "2026-01-01T03:00:00.500000+00:00",
        "America/St_Johns": "2025-12-31T23:30:00.500000-03:30",
        "Asia/Kathmandu": "2026-01-01T08:45:00.500000+05:45",
    }.items():
        for month in ({}, {"month": expected[:7]}):
            [row] = rows(await export(api, "tasks", tz=zone, **month))
            assert (row["created_at"], row["updated_at"]) == (expected, expected)
    for extreme in ("0001-01", "9999-12"):
        for zone in ("UTC", "Pacific/Kiritimati", "Pacific/Niue"):
            assert rows(await export(api, "tasks", tz=zone, month=extreme)) == []
        assert (await api.fetch(f"GET /api/tasks?month={extreme}"))["items"] == []


async def test_a_zone_unknown_to_the_database_gets_a_400(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    berlin = (resources.files("tzdata.zoneinfo.Europe") / "Berlin").read_bytes()
    monkeypatch.setattr(handlers, "_zones", lambda: {"Europe/Atlantis"})
    monkeypatch.setattr(handlers, "ZoneInfo", lambda name: ZoneInfo.from_file(io.BytesIO(berlin), name))
    response = await api.client.get("/api/export/tasks?tz=Europe/Atlantis")
    assert response.status_code == (400 if api.engine.dialect.name == "postgresql" else 200)


async def test_a_long_export_is_complete_ordered_and_sent_in_chunks_beside_other_requests(api: Api) -> None:
    await insert_tasks(api)
    stream = CsvExporter(api.engine, NoOpTracer(), defuse_formulas=True).stream(Table.TASKS, None)
    chunks = [await anext(stream)]
    await api.add_user()  # while the export waits for its client
    chunks += [chunk async for chunk in stream]
    assert max(len(chunk) for chunk in chunks) < 2 * CHUNK_BYTES
    response = await export(api, "tasks")
    assert response.content == b"".join(chunks)
    found = [(row["created_at"], row["id"]) for row in rows(response)]
    assert len(found) == 3000
    assert found == sorted(found)


async def test_exports_beyond_the_limit_are_refused_until_one_is_abandoned(api: Api) -> None:
    exporter = CsvExporter(api.engine, NoOpTracer(), defuse_formulas=True)
    await insert_tasks(api)
    streams = [exporter.stream(Table.TASKS, None) for _ in range(8)]
    for stream in streams:
        await anext(stream)
    for _ in range(20):
        with pytest.raises(TooManyExports):
            await anext(exporter.stream(Table.TASKS, None))
        await streams.pop().aclose()
        streams.append(exporter.stream(Table.TASKS, None))
        await anext(streams[-1])
    for stream in streams:
        await stream.aclose()
    assert exporter.active == 0


async def test_an_error_before_the_first_byte_is_a_500(api: Api) -> None:
    await api.execute("ALTER TABLE tasks RENAME TO gone")
    assert await api.answer("GET /api/export/tasks") == (500, {"error": "Internal server error"})
