"""Shipments are listed page by page, on SQLite and on PostgreSQL."""

import time
from collections.abc import Callable, Sequence

import pytest

from chassis.failpoints import Failpoints
from chassis.values import paging
from chassis.values.paging import Position
from shipping_service.domain import Entry, Manifest, Parcel, Shipper
from shipping_service.service import ShipmentManifest
from shop_internal.shipment_manifest_pb2 import ListShipmentsRequest, RecordedShipment
from shop_internal.shipment_manifest_pb2_grpc import ShipmentManifestStub, add_ShipmentManifestServicer_to_server
from shop_kit.serving import connect

MakeParcel = Callable[..., Parcel]


async def test_shipments_are_listed_page_by_page(
    manifest: Manifest, parcel: MakeParcel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paging, "PAGE_SIZE", 2)
    shipped = {await manifest.record(Entry(f"key-{number}", parcel())) for number in range(5)}
    await manifest.record(Entry("fenced"))
    token = ""
    pages: list[Sequence[RecordedShipment]] = []
    servicer = ShipmentManifest(Shipper(manifest, float), Failpoints())
    async with connect((add_ShipmentManifestServicer_to_server, servicer)) as channel:
        while not pages or token:
            page = await ShipmentManifestStub(channel).ListShipments(ListShipmentsRequest(page_token=token))
            token = page.next_page_token
            pages.append(page.shipments)
    listed = [shipment for page in pages for shipment in page]
    assert [len(page) for page in pages] == [2, 2, 1, 0]
    assert {(shipment.shipment_key, shipment.tracking_id) for shipment in listed} == {
        (entry.key, entry.tracking_id) for entry in shipped
    }


async def test_shipments_are_listed_from_the_time_on_at_which_they_were_recorded(
    manifest: Manifest, parcel: MakeParcel
) -> None:
    now = time.time()
    await manifest.record(Entry("key", parcel()))
    (shipment,) = await manifest.list_shipments(Position(now - 60), 10)
    assert shipment.recorded_at == pytest.approx(now, abs=60)
    assert await manifest.list_shipments(Position(now + 60), 10) == []
