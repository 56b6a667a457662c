import asyncio
import csv
import io
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
from shop_kit.employee_api import Api, StartApi

COLUMNS = {
    "tasks": "id,title,description,status,priority,assignee_id,assignee_name,reporter_id,reporter_name,due_date,"
    "created_at,updated_at",
    "users": "id,name,email,role,dept,created_at",
    "activities": "id,created_at,actor_id,actor_name,action,subject_type,subject_id,subject_name,changes",
}


async def export(api: Api, table: str, month: str | None = None) -> httpx2.Response:
    response = await api.client.get(f"/api/export/{table}", params={"month": month} if month else {})
    assert response.status_code == 200, response.text
    return response


def rows(response: httpx2.Response) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(response.content.decode(), newline="")))


async def insert_tasks(api: Api, count: int) -> None:
    """Insert tasks, two at each creation time."""
    values = {"description": "x" * 40, "status": "todo", "priority": "low"}
    timestamps = [datetime(2026, 1, 1, tzinfo=UTC).replace(microsecond=number // 2) for number in range(count)]
    tasks = [
        values | {"id": uuid.uuid4(), "title": f"Task {number}", "created_at": timestamp, "updated_at": timestamp}
        for number, timestamp in enumerate(timestamps)
    ]
    async with api.engine.begin() as connection:
        await connection.execute(insert(Task), tasks)


@pytest.mark.parametrize("table", list(COLUMNS))
@pytest.mark.parametrize(("month", "name"), [(None, "all"), ("2026-03", "2026-03")])
async def test_an_export_without_rows_is_a_csv_file_with_a_header(
    api: Api, table: str, month: str | None, name: str
) -> None:
    response = await export(api, table, month)
    assert response.content.decode() == COLUMNS[table] + "\r\n"
    assert response.headers["content-type"] == "text/csv; charset=utf-8"
    assert response.headers["content-disposition"] == f'attachment; filename="{table}-{name}.csv"'


async def test_tasks_are_exported_with_user_names_and_ids_or_empty_cells(api: Api) -> None:
    ada, bob = await api.add_user("Ada"), await api.add_user("Bob")
    task = await api.add_task("Water", assignee_id=ada["id"], reporter_id=bob["id"], due_date="2026-12-24")
    await api.add_task("Bare")
    row, bare = rows(await export(api, "tasks"))
    assert row == task | {"assignee_name": "Ada", "reporter_name": "Bob"}
    assert {bare[name] for name in ("assignee_id", "assignee_name", "due_date", "description")} == {""}


async def test_users_are_exported_without_password_hashes(api: Api) -> None:
    user = await api.add_user("Ada", dept="Ops", role="cto")
    response = await export(api, "users")
    [row] = rows(response)
    assert {name: row[name] for name in ("id", "name", "email", "role", "dept")}.items() <= user.items()
    assert b"argon2" not in response.content


async def test_activities_are_exported_with_their_changes_as_json(api: Api) -> None:
    task = await api.add_task("Water")
    await api.client.patch(f"/api/tasks/{task['id']}", json={"status": "done"})
    row = rows(await export(api, "activities"))[-1]
    assert (row["action"], row["subject_id"], row["subject_name"]) == ("updated", task["id"], "Water")
    assert row["changes"] == '{"status": {"before": "todo", "after": "done"}}'


async def test_any_text_is_exported_unchanged_and_every_record_ends_with_crlf(api: Api) -> None:
    texts = ["a,b", 'say "x"', "two\nlines", "two\r\nlines", " spaces ", "a=b", "é \U0001f600", "x"]
    for text in texts:
        await api.add_task(text)
    response = await export(api, "tasks")
    assert [row["title"] for row in rows(response)] == texts
    assert response.content.count(b"\r\n") == 1 + len(texts) + 1  # one of the titles has one
    assert response.content.endswith(b"\r\n")


@pytest.mark.parametrize(
    "start_of_formula",
    ["=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20", "  =", "\u00a0-", " \u3000\t"],
)
async def test_formulas_are_defused_in_free_text_unless_configured(
    start_api: StartApi, api: Api, start_of_formula: str
) -> None:
    text = f"{start_of_formula}1+1"
    user = await api.add_user(text, dept=text, role=text, email=f"{text}@x")
    await api.add_task(text, description=text, assignee_id=user["id"])
    [exported] = rows(await export(api, "users"))
    assert {exported[name] for name in ("name", "dept", "role")} == {f"'{text}"}
    assert exported["email"] == f"'{text}@x"
    [task] = rows(await export(api, "tasks"))
    assert (task["title"], task["description"], task["assignee_name"]) == (f"'{text}", f"'{text}", f"'{text}")
    assert {row["subject_name"] for row in rows(await export(api, "activities"))} == {f"'{text}"}
    async with start_api(csv_defuse_formulas=False) as other:
        assert [row["title"] for row in rows(await export(other, "tasks"))] == [text]


async def test_a_file_begins_with_a_byte_order_mark_if_requested(api: Api) -> None:
    plain = (await export(api, "tasks")).content
    assert (await api.client.get("/api/export/tasks?bom=true")).content == b"\xef\xbb\xbf" + plain
    assert (await api.client.get("/api/export/tasks?bom=false")).content == plain


@pytest.mark.parametrize(("separator", "character"), [(",", ","), (";", ";"), ("tab", "\t")])
async def test_cells_are_those_of_the_requested_separator(api: Api, separator: str, character: str) -> None:
    texts = ["plain", *(f"{start}a{other}=1+1" for start in ("", "=", "\t") for other in (",", ";", "\t", '"', "\r\n"))]
    for text in texts:
        await api.add_task(text)
    response = await api.client.get("/api/export/tasks", params={"separator": separator})
    assert response.content.startswith(COLUMNS["tasks"].replace(",", character).encode() + b"\r\n")
    header, *rows = csv.reader(io.StringIO(response.content.decode(), newline=""), delimiter=character)
    assert {len(row) for row in rows} == {len(header)}
    assert [row[1] for row in rows] == [f"'{text}" if text[0] in "=\t" else text for text in texts]
    assert (response.content == (await export(api, "tasks")).content) is (separator == ",")


@pytest.mark.parametrize(
    ("parameters", "edges", "exported"),
    [
        (
            "month=2026-02",
            ("2026-01-31T23:59:59.999999", "2026-02-01T00:00:00", "2026-02-28T23:59:59.999999", "2026-03-01T00:00:00"),
            ("2026-02-01T00:00:00.000000Z", "2026-02-28T23:59:59.999999Z"),
        ),
        (  # Clocks in Berlin were set forward at 01:00 UTC on 29 March 2026.
            "month=2026-03&tz=Europe/Berlin",
            ("2026-02-28T22:59:59.999999", "2026-02-28T23:00:00", "2026-03-31T21:59:59", "2026-03-31T22:00:00"),
            ("2026-03-01T00:00:00.000000+01:00", "2026-03-31T23:59:59.000000+02:00"),
        ),
    ],
)
async def test_months_and_timestamps_are_in_utc_or_the_requested_time_zone(
    api: Api, parameters: str, edges: tuple[str, ...], exported: tuple[str, ...]
) -> None:
    for timestamp in edges:
        await insert_task_at(api, timestamp)
    response = await api.client.get(f"/api/export/tasks?{parameters}")
    assert [(row["title"], row["created_at"]) for row in rows(response)] == list(zip(edges[1:3], exported, strict=True))
    assert len(rows(await export(api, "tasks"))) == 4


@pytest.mark.parametrize(
    ("zone", "expected"),
    [
        ("UTC", "2026-01-01T03:00:00.500000Z"),
        ("Europe/London", "2026-01-01T03:00:00.500000+00:00"),
        ("America/St_Johns", "2025-12-31T23:30:00.500000-03:30"),
        ("Asia/Kathmandu", "2026-01-01T08:45:00.500000+05:45"),
    ],
)
async def test_timestamps_have_the_offset_of_their_zone(api: Api, zone: str, expected: str) -> None:
    await insert_task_at(api, "2026-01-01T03:00:00.500000")
    for parameters in (f"tz={zone}", f"tz={zone}&month={expected[:7]}"):
        [row] = rows(await api.client.get(f"/api/export/tasks?{parameters}"))
        assert (row["created_at"], row["updated_at"]) == (expected, expected)


@pytest.mark.parametrize("month", ["0001-01", "9999-12"])
async def test_the_first_and_the_last_month_are_accepted_in_every_zone(api: Api, month: str) -> None:
    await api.add_task()
    for zone in ("UTC", "Pacific/Kiritimati", "Pacific/Niue"):
        assert rows(await api.client.get(f"/api/export/tasks?month={month}&tz={zone}")) == []
    assert (await api.client.get(f"/api/tasks?month={month}")).json()["items"] == []


UNKNOWN_ZONE = "tz must be a time zone of the IANA database, such as Europe/Berlin"
ZONES = ["Europe/Atlantis", "europe/berlin", "", "../../etc/passwd", "localtime", "CET-1", "Europe", "'; SELECT 1"]


@pytest.mark.parametrize(
    ("query", "text"),
    [
        *((f"tz={zone}", UNKNOWN_ZONE) for zone in [*ZONES, "a" * 999]),
        ("bom=perhaps", "bom must be true or false"),
        *(
            (f"separator={given}", "separator must be ',', ';' or 'tab'")
            for given in ("", "|", "=", "%22", "%09", ",,")
        ),
        ("tz=UTC&tz=UTC", "tz was given twice"),
        ("month=2026-1&tz=Europe/Berlin", "Month must be YYYY-MM"),
        ("month=2026-1&tz=nowhere", "Month must be YYYY-MM"),
    ],
)
async def test_an_invalid_parameter_is_named(api_on_sqlite: Api, query: str, text: str) -> None:
    response = await api_on_sqlite.client.get(f"/api/export/tasks?{query}")
    assert (response.status_code, response.json()) == (400, {"error": text})


async def test_a_zone_that_only_the_database_does_not_know_gets_a_400(
    start_api: StartApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handlers, "_zones", lambda: {"Europe/Atlantis"})
    monkeypatch.setattr(handlers, "ZoneInfo", lambda name: ZoneInfo.from_file(tz_data(), name))
    async with start_api() as api:
        response = await api.client.get("/api/export/tasks?tz=Europe/Atlantis")
        assert response.status_code == (400 if api.engine.dialect.name == "postgresql" else 200)


def tz_data() -> io.BytesIO:
    return io.BytesIO((resources.files("tzdata.zoneinfo.Europe") / "Berlin").read_bytes())


async def insert_task_at(api: Api, timestamp: str) -> None:
    at = datetime.fromisoformat(timestamp).replace(tzinfo=UTC)
    values = {"id": uuid.uuid4(), "title": timestamp, "description": "", "status": "todo", "priority": "low"}
    async with api.engine.begin() as connection:
        await connection.execute(insert(Task), [values | {"created_at": at, "updated_at": at}])


async def test_rows_are_ordered_by_creation_time_and_id(api: Api) -> None:
    await insert_tasks(api, 400)
    first, second = rows(await export(api, "tasks")), rows(await export(api, "tasks"))
    assert first == second == sorted(first, key=lambda row: (row["created_at"], row["id"]))


async def test_a_long_export_is_complete_and_sent_in_chunks(api: Api) -> None:
    await insert_tasks(api, 5000)
    exporter = CsvExporter(api.engine, NoOpTracer(), defuse_formulas=True)
    chunks = [chunk async for chunk in exporter.stream(Table.TASKS, None)]
    assert b"".join(chunks).count(b"\r\n") == 5001
    assert max(len(chunk) for chunk in chunks) < 2 * CHUNK_BYTES
    assert (await export(api, "tasks")).content == b"".join(chunks)


async def test_exports_beyond_the_limit_are_refused_until_one_is_abandoned(api: Api) -> None:
    exporter = CsvExporter(api.engine, NoOpTracer(), defuse_formulas=True)
    await insert_tasks(api, 3000)
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


async def test_other_requests_are_served_while_an_export_waits_for_its_client(api: Api) -> None:
    await insert_tasks(api, 5000)
    chunks = CsvExporter(api.engine, NoOpTracer(), defuse_formulas=True).stream(Table.TASKS, None)
    await anext(chunks)
    async with asyncio.timeout(30):
        await api.add_user()
        assert (await api.client.get("/api/tasks")).status_code == 200
    await chunks.aclose()


async def test_an_error_before_the_first_byte_is_a_500(api: Api) -> None:
    async with api.engine.begin() as connection:
        await connection.exec_driver_sql("ALTER TABLE tasks RENAME TO gone")
    try:
        response = await api.client.get("/api/export/tasks")
        assert (response.status_code, response.json()) == (500, {"error": "Internal server error"})
    finally:
        async with api.engine.begin() as connection:
            await connection.exec_driver_sql("ALTER TABLE gone RENAME TO tasks")
