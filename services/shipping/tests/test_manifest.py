"""Tests of the manifest, which run on both SQLite and PostgreSQL."""

import asyncio
import time
from collections.abc import Callable

import pytest

from chassis.values.orders import Item
from chassis.values.paging import Position
from shipping_service.domain import Entry, Parcel
from shipping_service.manifest.sql import SqlManifest, open_manifest
from shop_kit.databases import execute

MakeParcel = Callable[..., Parcel]


async def test_entries_are_read_back_as_recorded_also_after_a_restart(database_url: str, parcel: MakeParcel) -> None:
    entries = [
        Entry("shipped", parcel(street_address='Tab\t"7"\nRear building é')),
        Entry("fenced"),
        Entry("k" * 255, parcel((Item("x" * 256, 1_000_000),), zip_code=2**31 - 1)),
    ]
    async with open_manifest(database_url) as manifest:
        for entry in entries:
            recorded = await manifest.record(entry)
            assert (recorded, recorded.existing) == (entry, False)
    async with open_manifest(database_url) as manifest:
        assert [await manifest.find(entry.key) for entry in entries] == entries


async def test_shipments_are_listed_from_the_time_on_at_which_they_were_recorded(
    manifest: SqlManifest, parcel: MakeParcel
) -> None:
    now = time.time()
    await manifest.record(Entry("key", parcel()))
    (shipment,) = await manifest.scan(Position(now - 60), 10)
    assert shipment.recorded_at == pytest.approx(now, abs=60)
    assert await manifest.scan(Position(now + 60), 10) == []


async def test_the_shipments_of_orders_are_listed_even_if_they_cannot_be_decoded(
    database_url: str, parcel: MakeParcel
) -> None:
    async with open_manifest(database_url) as manifest:
        for key in ("id", "id:2", "id2"):
            await manifest.record(Entry(key, parcel()))
        execute(database_url, "UPDATE shipments SET parcel = '{' WHERE shipment_key = 'id:2'")
        listed = await manifest.list_of_orders(["id"])
        assert {entry.key: entry.parcel for entry in listed} == {"id": parcel(), "id:2": None}
        assert len(await manifest.scan(Position(0), 10)) == 3


@pytest.mark.parametrize("round_number", range(2))
async def test_of_a_concurrent_shipment_and_fence_exactly_one_wins(
    database_url: str, parcel: MakeParcel, round_number: int
) -> None:
    """Two replicas write at the same time, and take turns at writing first."""
    keys = [f"key-{number}" for number in range(20)]
    async with open_manifest(database_url) as one, open_manifest(database_url) as other:
        writes = [(one, [Entry(key, parcel()) for key in keys]), (other, [Entry(key) for key in keys])]
        if round_number % 2:
            writes.reverse()
        raced = await asyncio.gather(*(manifest.record(entry) for manifest, entries in writes for entry in entries))
        stored = [await one.find(key) for key in keys]
    assert raced == stored * 2
    assert [first.existing + second.existing for first, second in zip(raced[:20], raced[20:], strict=True)] == [1] * 20
