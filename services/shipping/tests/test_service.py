from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from chassis.values import paging
from chassis.values.datafile import DataFile
from shipping_service.__main__ import Settings
from shipping_service.domain import Entry, Parcel, Shipper
from shipping_service.failpoints import FAILPOINTS
from shipping_service.manifest.sql import SqlManifest, open_manifest
from shipping_service.service import ShippingService
from shipping_service.store import parse_rate_card
from shop import address_pb2, cart_pb2, money_pb2, shipping_pb2
from shop.shipping_pb2_grpc import ShippingServiceStub
from shop_internal.shipment_manifest_pb2 import ListShipmentsRequest, ResolveShipmentRequest, ResolveShipmentResponse
from shop_internal.shipment_manifest_pb2_grpc import ShipmentManifestStub
from shop_kit.databases import execute
from shop_kit.failing import all_pages, failure_of, rejected_fields, retried
from shop_kit.serving import connect

BREMEN = address_pb2.Address(street_address="Lindenweg 7", city="Bremen", country="Germany", zip_code=28195)
NOWHERE = address_pb2.Address(street_address=" ")
PAN = cart_pb2.CartItem(product_id="pan", quantity=1)
NO_ITEM = cart_pb2.CartItem(product_id="pan", quantity=0)


@dataclass(frozen=True)
class Shipping:
    """Stubs of the public and the internal service in one process."""

    public: ShippingServiceStub
    internal: ShipmentManifestStub

    async def ship(self, key: str | None = None) -> str:
        request = shipping_pb2.ShipOrderRequest(address=BREMEN, items=[PAN])
        metadata = () if key is None else (("idempotency-key", key),)
        return (await self.public.ShipOrder(request, metadata=metadata)).tracking_id

    async def resolve(self, key: str) -> ResolveShipmentResponse:
        return await self.internal.ResolveOrFence(ResolveShipmentRequest(shipment_key=key))


@asynccontextmanager
async def serving(manifest: SqlManifest, failpoints: str = "") -> AsyncIterator[Shipping]:
    rate_card = DataFile(Settings().rate_card_file, parse_rate_card)
    servicer = ShippingService(rate_card, Shipper(manifest), manifest)
    async with connect(servicer, failpoints=failpoints) as channel:
        yield Shipping(ShippingServiceStub(channel), ShipmentManifestStub(channel))


@pytest.fixture
async def shipping(sqlite_url: str) -> AsyncIterator[Shipping]:
    async with open_manifest(sqlite_url) as manifest, serving(manifest) as opened:
        yield opened


async def test_a_quote_is_in_dollars_and_depends_on_the_country_and_the_number_of_pieces(shipping: Shipping) -> None:
    call = shipping.public.GetQuote(shipping_pb2.GetQuoteRequest(address=BREMEN, items=[PAN]))
    assert (await call).cost_usd == money_pb2.Money(currency_code="USD", units=14, nanos=500_000_000)
    assert ("quote-depends-on", "country,pieces") in tuple(await call.trailing_metadata())


@pytest.mark.parametrize(
    ("address", "items"), [(None, [PAN]), (NOWHERE, [PAN]), (BREMEN, []), (BREMEN, [NO_ITEM]), (BREMEN, [PAN, NO_ITEM])]
)
async def test_what_cannot_be_quoted_cannot_be_shipped(
    shipping: Shipping, address: address_pb2.Address | None, items: list[cart_pb2.CartItem]
) -> None:
    quoted = shipping.public.GetQuote(shipping_pb2.GetQuoteRequest(address=address, items=items))
    shipped = shipping.public.ShipOrder(shipping_pb2.ShipOrderRequest(address=address, items=items))
    codes = [(await failure_of(quoted))[0], (await failure_of(shipped))[0]]
    assert codes == [grpc.StatusCode.INVALID_ARGUMENT] * 2


async def test_a_key_ships_once_and_shipments_without_one_are_distinct(shipping: Shipping) -> None:
    assert await shipping.ship("key") == await shipping.ship("key")
    assert await shipping.ship() != await shipping.ship()


@pytest.mark.parametrize("key", ["", "k" * 256])
async def test_a_malformed_key_is_rejected(shipping: Shipping, key: str) -> None:
    for call in (shipping.ship(key), shipping.resolve(key)):
        assert (await failure_of(call))[0] is grpc.StatusCode.INVALID_ARGUMENT


async def test_resolving_an_unused_key_fences_it_and_a_second_resolution_says_that_it_was(shipping: Shipping) -> None:
    assert [(await shipping.resolve("key")).fenced.existing for _ in range(2)] == [False, True]
    assert await failure_of(shipping.ship("key")) == (grpc.StatusCode.ABORTED, "SHIPMENT_FENCED")


@pytest.mark.parametrize("action", ["error", "hang"])
@pytest.mark.parametrize("point", FAILPOINTS)
async def test_a_call_that_failed_or_hung_has_one_effect_when_retried(sqlite_url: str, point: str, action: str) -> None:
    async with open_manifest(sqlite_url) as manifest, serving(manifest, f"{point}={action}*1") as shipping:
        shipped = await retried(lambda: shipping.ship("key"))
        assert (await retried(lambda: shipping.resolve("key"))).shipped.tracking_id == shipped
    assert execute(sqlite_url, "SELECT shipment_key, state FROM shipments") == [("key", "SHIPPED")]


async def test_shipments_are_listed_page_by_page(
    manifest: SqlManifest, parcel: Callable[..., Parcel], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paging, "PAGE_SIZE", 2)
    shipped = {await manifest.record(Entry(f"key-{number}", parcel())) for number in range(5)}
    await manifest.record(Entry("fenced"))
    async with serving(manifest) as shipping:
        fetch = shipping.internal.ListShipments
        pages = await all_pages(lambda token: fetch(ListShipmentsRequest(page_token=token)))
    assert [len(page.shipments) for page in pages] == [2, 2, 1, 0]
    listed = {(shipment.shipment_key, shipment.tracking_id) for page in pages for shipment in page.shipments}
    assert listed == {(entry.key, entry.tracking_id) for entry in shipped}


async def test_a_shipment_that_may_be_forgotten_is_refused(shipping: Shipping, sqlite_url: str) -> None:
    execute(sqlite_url, "UPDATE retention SET deleted_until = 1000")
    request = shipping_pb2.ShipOrderRequest(address=BREMEN, items=[PAN])
    metadata = (("idempotency-key", "key"), ("charged-at", "999.5"))
    resolved = ResolveShipmentRequest(shipment_key="key", charged_at=Timestamp(seconds=999))
    for call in (shipping.public.ShipOrder(request, metadata=metadata), shipping.internal.ResolveOrFence(resolved)):
        assert await failure_of(call) == (grpc.StatusCode.FAILED_PRECONDITION, "SHIPMENT_FORGOTTEN")


@pytest.mark.parametrize("charged_at", ["now", "nan", "-1", "1e9", "9" * 12])
async def test_a_malformed_time_of_a_charge_is_refused(shipping: Shipping, charged_at: str) -> None:
    request = shipping_pb2.ShipOrderRequest(address=BREMEN, items=[PAN])
    call = shipping.public.ShipOrder(request, metadata=(("charged-at", charged_at),))
    assert await rejected_fields(call) == ["charged-at"]
