"""One suite for the manifest on SQLite and on PostgreSQL."""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any

import psycopg
import pytest
from opentelemetry.trace import SpanKind

from chassis.sql.database import open_database
from chassis.sql.url import sqlite_path
from shipping_service.domain import Entry, Item, Manifest, ManifestUnavailable, Parcel, Recorded
from shipping_service.manifest.sql import SqlManifest, open_manifest
from shop_kit.serving import Recorded as RecordedTelemetry

MakeParcel = Callable[..., Parcel]


async def test_an_unknown_key_has_no_entry(manifest: Manifest) -> None:
    assert await manifest.find("key") is None


async def test_an_entry_is_read_back_as_recorded(manifest: Manifest, parcel: MakeParcel) -> None:
    entries = [
        Entry("shipped", parcel(street_address='Tab\t"7"\nRear building é')),
        Entry("fenced"),
        Entry("k" * 255, parcel((Item("x" * 256, 1_000_000),), zip_code=2**31 - 1)),
    ]
    for entry in entries:
        assert await manifest.record(entry) == Recorded(entry, existing=False)
        assert await manifest.find(entry.key) == entry


async def test_the_first_entry_of_a_key_is_final(manifest: Manifest, parcel: MakeParcel) -> None:
    shipped = Entry("key", parcel())
    await manifest.record(shipped)
    assert await manifest.record(Entry("key")) == Recorded(shipped, existing=True)
    assert await manifest.find("key") == shipped


async def test_entries_survive_a_restart(manifest_url: str, parcel: MakeParcel) -> None:
    async with open_manifest(manifest_url) as manifest:
        await manifest.record(Entry("key", parcel()))
    async with open_manifest(manifest_url) as manifest:
        assert await manifest.find("key") == Entry("key", parcel())


@pytest.mark.parametrize("round_number", range(5))
async def test_of_a_concurrent_shipment_and_fence_exactly_one_wins(
    manifest_url: str, parcel: MakeParcel, round_number: int
) -> None:
    """Two replicas write at once; which one starts alternates from round to round."""
    keys = [f"key-{number}" for number in range(20)]
    async with open_manifest(manifest_url) as one, open_manifest(manifest_url) as other:
        writes = [(one, [Entry(key, parcel()) for key in keys]), (other, [Entry(key) for key in keys])]
        if round_number % 2:
            writes.reverse()
        raced = await asyncio.gather(*(manifest.record(entry) for manifest, entries in writes for entry in entries))
        stored = [await one.find(key) for key in keys]
    assert [each.entry for each in raced[:20]] == [each.entry for each in raced[20:]] == stored
    assert [first.existing + second.existing for first, second in zip(raced[:20], raced[20:], strict=True)] == [1] * 20


async def test_the_manifest_works_after_cancelled_writes(manifest: Manifest, parcel: MakeParcel) -> None:
    for number in range(50):
        task = asyncio.create_task(manifest.record(Entry(f"key-{number}", parcel())))
        await asyncio.sleep(0)
        task.cancel()
    assert (await manifest.record(Entry("key", parcel()))).entry == Entry("key", parcel())


async def test_a_working_manifest_passes_its_check(manifest: Manifest) -> None:
    await manifest.check()


async def test_a_full_disk_refuses_shipments_and_loses_none(
    sqlite_url: str, parcel: MakeParcel, stored: Callable[[str], list[tuple[Any, ...]]]
) -> None:
    async with open_database(sqlite_url, unavailable=ManifestUnavailable) as database:
        ((row,),) = await database.write(("PRAGMA page_count", {}))
        await database.write((f"PRAGMA max_page_count = {row['page_count'] + 2}", {}))
        recorded = await record_until_full(SqlManifest(database), parcel)
    assert [key for key, _ in stored(sqlite_url)] == recorded


async def record_until_full(manifest: Manifest, parcel: MakeParcel) -> list[str]:
    """Record shipments until the disk is full; return the keys of the recorded ones."""
    recorded: list[str] = []
    while len(recorded) < 1000:
        key = f"key-{len(recorded):03}"
        try:
            await manifest.record(Entry(key, parcel()))
        except ManifestUnavailable:
            return recorded
        recorded.append(key)
    pytest.fail("the disk was never full")


async def test_a_file_locked_by_another_process_is_unavailable(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chassis.sql.sqlite.ANSWER_WITHIN_SECONDS", 0.1)
    path = sqlite_path(sqlite_url)
    assert path is not None
    async with open_manifest(sqlite_url) as manifest:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(ManifestUnavailable):
                await manifest.record(Entry("key"))
            other.execute("ROLLBACK")
        assert not (await manifest.record(Entry("key"))).existing


async def test_connections_closed_by_the_server_are_replaced(postgres_url: str) -> None:
    async with open_manifest(postgres_url) as manifest:
        await asyncio.gather(*(manifest.find(str(number)) for number in range(16)))
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        entries = [Entry(str(number)) for number in range(16)]
        recorded = await asyncio.gather(*map(manifest.record, entries))
    assert [each.entry for each in recorded] == entries


async def test_each_operation_is_a_span_without_values(
    recorded: RecordedTelemetry, manifest_url: str, parcel: MakeParcel
) -> None:
    async with open_manifest(manifest_url, recorded.telemetry) as manifest:
        with recorded.telemetry.tracer.start_as_current_span("call"):
            await manifest.record(Entry("key-of-the-order", parcel()))
            await manifest.find("key-of-the-order")
    spans = [span for span in recorded.spans() if span.kind is SpanKind.CLIENT]
    assert [span.name for span in spans] == ["INSERT shipments", "SELECT shipments"]
    assert not [span for span in spans if "key-of-the-order" in span.to_json() or "Lindenweg" in span.to_json()]
