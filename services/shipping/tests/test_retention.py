"""Tests that old manifest entries are deleted, on SQLite and on PostgreSQL."""

import json
import re
import time
from collections.abc import Callable

import pytest

from chassis.sql.opening import open_database
from shipping_service.__main__ import Settings, build
from shipping_service.domain import Entry, ManifestUnavailable, Parcel, ShipmentFenced, ShipmentForgotten, Shipper
from shipping_service.manifest.sql import OLD, SqlManifest
from shop_kit.databases import execute, plan_on_sqlite
from shop_kit.serving import program
from shop_kit.waiting import wait_until

MakeParcel = Callable[..., Parcel]

DAY = 86_400
STORED = "SELECT shipment_key, state FROM shipments ORDER BY shipment_key"
SOME_DAYS_AGO = {"sqlite": "datetime('now', '-{} days')", "postgresql": "now() - interval '{} days'"}


def age(url: str, key: str, days: int) -> None:
    """Change an entry as if it had been recorded this many days ago."""
    then = SOME_DAYS_AGO[url.partition(":")[0]].format(days)
    execute(url, f"UPDATE shipments SET recorded_at = {then} WHERE shipment_key = '{key}'")  # noqa: S608 - constants


async def test_old_entries_are_deleted_in_batches(manifest: SqlManifest, database_url: str, parcel: MakeParcel) -> None:
    for number in range(3):
        await manifest.record(Entry(f"old-{number}", parcel()))
        age(database_url, f"old-{number}", 4 - number)
    await manifest.record(Entry("old-fence"))
    age(database_url, "old-fence", 5)
    await manifest.record(Entry("young", parcel()))
    assert await manifest.deletions.delete_old(time.time() - DAY, limit=3) == 3
    assert execute(database_url, STORED) == [("old-2", "SHIPPED"), ("young", "SHIPPED")]
    assert [await manifest.deletions.delete_old(time.time() - DAY, limit=3) for _ in range(2)] == [1, 0]
    assert execute(database_url, STORED) == [("young", "SHIPPED")]


async def test_a_key_is_free_again_once_its_entry_was_deleted(
    manifest: SqlManifest, database_url: str, parcel: MakeParcel
) -> None:
    shipper = Shipper(manifest)
    await shipper.resolve_or_fence("key")
    with pytest.raises(ShipmentFenced):
        await shipper.ship("key", parcel())
    age(database_url, "key", 2)
    await manifest.deletions.delete_old(time.time() - DAY, limit=10)
    for call in (shipper.ship("key", parcel(), time.time() - 3 * DAY), shipper.resolve_or_fence("key", 1.0)):
        with pytest.raises(ShipmentForgotten):
            await call
    assert (await shipper.ship("key", parcel(), time.time() - DAY)).parcel == parcel()


async def test_the_service_deletes_entries_after_their_retention(manifest: SqlManifest, database_url: str) -> None:
    for key, days in (("old", 3), ("young", 1)):
        await manifest.record(Entry(key))
        age(database_url, key, days)
    async with program(Settings, build, database_url=database_url, retention_days=2):
        assert await wait_until(lambda: execute(database_url, STORED) == [("young", "FENCED")])


def test_sqlite_finds_old_entries_by_an_index(sqlite_url: str) -> None:
    plan = plan_on_sqlite(sqlite_url, OLD, {"older_than": time.time() - DAY, "limit": 200, "passed": 0})
    assert [step for step in plan if "ix_shipments_recorded_at (recorded_at<?)" in step]
    assert [step for step in plan if step.startswith("SCAN shipments") or "TEMP B-TREE" in step] == []


async def test_postgresql_finds_old_entries_by_an_index(postgres_url: str) -> None:
    """The table has 100,000 entries from a year and a half, a third of them older than the retention."""
    entries = "SELECT md5(n::text), 'FENCED', 'x', NULL, now() - n * interval '470 s' FROM generate_series(1, 1e5) n"
    for statement in (f"INSERT INTO shipments {entries}", "ANALYZE shipments"):
        execute(postgres_url, statement)
    parameters = {"older_than": time.time() - 365 * DAY, "limit": 200, "passed": 0}
    async with open_database(postgres_url, unavailable=ManifestUnavailable) as database:
        (row,) = await database.read(f"EXPLAIN (FORMAT JSON) {OLD}", parameters)
    plan = json.dumps(row["QUERY PLAN"])
    assert re.search('"Index Cond": "[^"]*recorded_at', plan)
    assert '"Seq Scan"' not in plan
