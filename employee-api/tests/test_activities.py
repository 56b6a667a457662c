import sqlite3
from contextlib import closing
from datetime import UTC, datetime

from shop_kit.employee_api import UNKNOWN_ID, Api, on_each_database


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
