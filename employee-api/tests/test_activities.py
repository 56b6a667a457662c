import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from shop_kit.employee_accounts import UNKNOWN_ID, log_in, started_with
from shop_kit.employee_api import Api, StartApi


async def test_activities_are_filtered_by_month(api: Api) -> None:
    await api.add_task("March")
    api.clock.now = datetime(2026, 4, 1, tzinfo=UTC)
    await api.add_task("April")
    for month, title in [("2026-03", "March"), ("2026-04", "April")]:
        [[activity]] = await api.pages("/api/activities", month=month)
        assert activity["subject_name"] == title


async def test_activities_are_filtered_by_subject_and_action(api: Api) -> None:
    task, _ = await api.add_task("one"), await api.add_task("other")
    await api.client.patch(f"/api/tasks/{task['id']}", json={"title": "changed"})
    [found] = await api.pages("/api/activities", subject=task["id"])
    assert [item["action"] for item in found] == ["updated", "created"]
    [found] = await api.pages("/api/activities", subject=task["id"], action="created")
    assert [item["subject_name"] for item in found] == ["one"]
    [found] = await api.pages("/api/activities", action="created")
    assert [item["subject_name"] for item in found] == ["other", "one"]
    assert await api.pages("/api/activities", subject=UNKNOWN_ID) == [[]]
    assert await api.pages("/api/activities", action="CREATED") == [[]]


async def test_activities_are_filtered_by_actor(start_api: StartApi) -> None:
    async with started_with(start_api, "enforce", "manager", "cto") as (api, users):
        for user in users:
            api.client.headers.update(await log_in(api, user["email"]))
            await api.add_task(f"by {user['name']}")
        for user in users:
            [[activity]] = await api.pages("/api/activities", actor=user["id"])
            assert activity["subject_name"] == f"by {user['name']}"


@pytest.mark.parametrize("parameter", ["subject", "actor", "action"])
@pytest.mark.parametrize("value", ["x\0", "x" * 1001])
async def test_an_invalid_filter_gets_a_400_that_names_it(api_on_sqlite: Api, parameter: str, value: str) -> None:
    response = await api_on_sqlite.client.get("/api/activities", params={parameter: value})
    assert response.status_code == 400
    assert response.json()["error"].startswith(f"{parameter} ")


def test_the_activities_of_a_subject_are_read_in_the_order_of_an_index(migrated_sqlite: Path) -> None:
    query = "SELECT * FROM activities WHERE subject_id = ? ORDER BY created_at DESC, id DESC LIMIT 51"
    with closing(sqlite3.connect(migrated_sqlite)) as connection:
        plan = connection.execute(f"EXPLAIN QUERY PLAN {query}", (UNKNOWN_ID,)).fetchall()
    assert [step[3] for step in plan] == [
        "SEARCH activities USING INDEX ix_activities_subject_id_created_at_id (subject_id=?)"
    ]
