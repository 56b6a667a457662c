import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from shipping_service.domain import ManifestUnavailable, Parcel, Shipment
from shipping_service.manifest import ManifestFile, NullManifest, open_manifest

MakeParcel = Callable[..., Parcel]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "new folder" / "shipments.jsonl"


@pytest.fixture
async def manifest(path: Path) -> AsyncIterator[ManifestFile]:
    async with open_manifest(path) as opened:
        assert isinstance(opened, ManifestFile)
        yield opened


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines() if line]


def readable(path: Path) -> list[str]:
    """The tracking ids of all complete lines, which is what a carrier reads."""
    return [json.loads(line)["tracking_id"] for line in path.read_text().splitlines() if line.endswith("}")]


async def test_a_shipment_is_a_line_with_its_street_address_and_items(
    manifest: ManifestFile, path: Path, parcel: MakeParcel
) -> None:
    await manifest.append(Shipment("SHOP-1", "key", parcel(street_address='Tab\t"7"\nRear building')))
    (line,) = lines(path)
    assert line.pop("time").endswith("+00:00")
    assert line == {
        "tracking_id": "SHOP-1",
        "key": "key",
        "street_address": 'Tab\t"7"\nRear building',
        "items": [{"product_id": "pan", "quantity": 1}, {"product_id": "knife", "quantity": 2}],
    }


async def test_concurrent_shipments_are_one_line_each(manifest: ManifestFile, path: Path, parcel: MakeParcel) -> None:
    ids = [f"SHOP-{number}" for number in range(300)]
    await asyncio.gather(*(manifest.append(Shipment(tracking_id, None, parcel())) for tracking_id in ids))
    assert readable(path) == ids


async def test_a_line_is_on_disk_before_append_returns(
    manifest: ManifestFile, path: Path, parcel: MakeParcel, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda _descriptor: flushed.append(len(readable(path))))
    await manifest.append(Shipment("SHOP-1", None, parcel()))
    assert flushed == [1]


async def test_a_reopened_manifest_is_appended_to(path: Path, parcel: MakeParcel) -> None:
    for tracking_id in ("SHOP-1", "SHOP-2"):
        async with open_manifest(path) as manifest:
            await manifest.append(Shipment(tracking_id, None, parcel()))
    assert readable(path) == ["SHOP-1", "SHOP-2"]


@pytest.fixture
def torn(path: Path) -> Path:
    """A manifest whose last line is incomplete."""
    path.parent.mkdir()
    path.write_text('{"tracking_id":"SHOP-0","ke')
    return path


async def test_a_line_torn_by_a_crash_does_not_corrupt_the_next_one(torn: Path, parcel: MakeParcel) -> None:
    async with open_manifest(torn) as manifest:
        await manifest.append(Shipment("SHOP-1", None, parcel()))
    assert readable(torn) == ["SHOP-1"]


async def test_a_failed_write_raises_and_does_not_corrupt_later_lines(
    manifest: ManifestFile, path: Path, parcel: MakeParcel, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(ManifestUnavailable):
            await manifest.append(Shipment("SHOP-1", None, parcel()))
    await manifest.append(Shipment("SHOP-2", None, parcel()))
    assert "SHOP-2" in readable(path)


def fail(_descriptor: int) -> None:
    raise OSError("disk")


async def test_a_full_disk_makes_the_manifest_unavailable(parcel: MakeParcel) -> None:
    manifest = ManifestFile(Path("/dev/full"))
    with pytest.raises(ManifestUnavailable):
        await manifest.append(Shipment("SHOP-1", None, parcel()))
    await manifest.close()


async def test_without_a_file_nothing_is_recorded(parcel: MakeParcel) -> None:
    async with open_manifest(None) as manifest:
        assert isinstance(manifest, NullManifest)
        await manifest.append(Shipment("SHOP-1", None, parcel()))
