import asyncio
import json
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest

from chassis.datafile import DataFile
from chassis.failpoints import Failpoints
from chassis.status import from_rpc_error
from shipping_service.__main__ import Settings
from shipping_service.domain import Shipper
from shipping_service.failpoints import FAILPOINTS
from shipping_service.manifest import open_manifest
from shipping_service.service import ShippingService
from shipping_service.store import parse_rate_card
from shop import address_pb2, cart_pb2, money_pb2, shipping_pb2
from shop.shipping_pb2_grpc import ShippingServiceStub, add_ShippingServiceServicer_to_server
from shop_testkit.serving import connect

BREMEN = address_pb2.Address(street_address="Lindenweg 7", city="Bremen", country="Germany", zip_code=28195)
PAN = cart_pb2.CartItem(product_id="pan", quantity=1)
NO_ITEM = cart_pb2.CartItem(product_id="pan", quantity=0)


@asynccontextmanager
async def shipping(manifest: Path | None = None, failpoints: str = "") -> AsyncIterator[ShippingServiceStub]:
    rate_card = DataFile(Settings().rate_card_file, parse_rate_card)
    async with open_manifest(manifest) as opened:
        servicer = ShippingService(rate_card, Shipper(opened), Failpoints(failpoints))
        async with connect((add_ShippingServiceServicer_to_server, servicer)) as channel:
            yield ShippingServiceStub(channel)


@pytest.fixture
async def stub() -> AsyncIterator[ShippingServiceStub]:
    async with shipping() as opened:
        yield opened


async def ship(
    stub: ShippingServiceStub, key: str | None = None, *items: cart_pb2.CartItem, street: str = "Lindenweg 7"
) -> str:
    address = address_pb2.Address(street_address=street, country="Germany")
    request = shipping_pb2.ShipOrderRequest(address=address, items=items or [PAN])
    metadata = () if key is None else (("idempotency-key", key),)
    return (await stub.ShipOrder(request, metadata=metadata)).tracking_id


async def failure_of(call: Awaitable[object]) -> tuple[grpc.StatusCode, str]:
    """Return the status code and the reason of a failing call."""
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call
    return error.value.code(), from_rpc_error(error.value).reason


def tracking_ids(manifest: Path) -> list[str]:
    return [json.loads(line)["tracking_id"] for line in manifest.read_text().splitlines()]


async def test_a_quote_is_in_dollars(stub: ShippingServiceStub) -> None:
    response = await stub.GetQuote(shipping_pb2.GetQuoteRequest(address=BREMEN, items=[PAN]))
    assert response.cost_usd == money_pb2.Money(currency_code="USD", units=14, nanos=500_000_000)


@pytest.mark.parametrize(
    ("address", "items"), [(None, [PAN]), (BREMEN, []), (BREMEN, [NO_ITEM]), (BREMEN, [PAN, NO_ITEM])]
)
async def test_what_cannot_be_quoted_cannot_be_shipped(
    stub: ShippingServiceStub, address: address_pb2.Address | None, items: list[cart_pb2.CartItem]
) -> None:
    quoted = stub.GetQuote(shipping_pb2.GetQuoteRequest(address=address, items=items))
    shipped = stub.ShipOrder(shipping_pb2.ShipOrderRequest(address=address, items=items))
    codes = [(await failure_of(quoted))[0], (await failure_of(shipped))[0]]
    assert codes == [grpc.StatusCode.INVALID_ARGUMENT] * 2


async def test_a_key_ships_once(stub: ShippingServiceStub) -> None:
    assert await ship(stub, "key") == await ship(stub, "key")


async def test_shipments_without_a_key_are_distinct(stub: ShippingServiceStub) -> None:
    assert await ship(stub) != await ship(stub)


async def test_a_key_reused_with_another_street_is_rejected(stub: ShippingServiceStub) -> None:
    await ship(stub, "key")
    expected = (grpc.StatusCode.INVALID_ARGUMENT, "IDEMPOTENCY_KEY_REUSED")
    assert await failure_of(ship(stub, "key", street="Lindenweg 8")) == expected


@pytest.mark.parametrize("key", ["", "two words", "k" * 256])
async def test_a_malformed_key_is_rejected(stub: ShippingServiceStub, key: str) -> None:
    assert (await failure_of(ship(stub, key)))[0] is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_full_disk_is_unavailable() -> None:
    async with shipping(Path("/dev/full")) as stub:
        assert await failure_of(ship(stub, "key")) == (grpc.StatusCode.UNAVAILABLE, "MANIFEST_UNAVAILABLE")


async def test_a_thousand_shipments_delivered_twice_are_a_thousand_shipments(tmp_path: Path) -> None:
    manifest = tmp_path / "shipments.jsonl"
    concurrency = asyncio.Semaphore(16)
    async with shipping(manifest) as stub:

        async def deliver(number: int) -> str:
            async with concurrency:
                return await ship(stub, f"key-{number}")

        shipped = await asyncio.gather(*(deliver(number) for number in range(1000) for _ in range(2)))
    assert shipped[::2] == shipped[1::2]
    assert len(set(shipped)) == 1000
    assert set(tracking_ids(manifest)) == set(shipped)


@pytest.mark.parametrize("action", ["error", "hang"])
@pytest.mark.parametrize("point", FAILPOINTS)
async def test_a_shipment_repeated_after_an_error_or_a_hang_is_recorded_once(
    tmp_path: Path, point: str, action: str
) -> None:
    manifest = tmp_path / "shipments.jsonl"
    async with shipping(manifest, f"{point}={action}*1") as stub:
        with pytest.raises((grpc.aio.AioRpcError, TimeoutError)):
            await asyncio.wait_for(ship(stub, "key"), 1)
        shipped = await ship(stub, "key")
    assert tracking_ids(manifest) == [shipped]
