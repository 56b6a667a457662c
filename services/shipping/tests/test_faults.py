"""Service processes that are killed around a shipment."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from shop import address_pb2, cart_pb2, shipping_pb2
from shop.shipping_pb2_grpc import ShippingServiceStub
from shop_kit.processes import service_process

Stored = Callable[[str], list[tuple[Any, ...]]]

REQUEST = shipping_pb2.ShipOrderRequest(
    address=address_pb2.Address(street_address="Lindenweg 7", city="Bremen", country="DE"),
    items=[cart_pb2.CartItem(product_id="pan", quantity=1)],
)


@asynccontextmanager
async def process(url: str, failpoints: str = "") -> AsyncIterator[tuple[asyncio.subprocess.Process, grpc.aio.Channel]]:
    """Run the service; yield its process and a channel to its public port."""
    async with (
        service_process("shipping_service", DATABASE_URL=url, FAILPOINTS=failpoints) as running,
        grpc.aio.insecure_channel(f"127.0.0.1:{running.port}") as channel,
    ):
        yield running.process, channel


async def ship(channel: grpc.aio.Channel, key: str | None) -> str:
    metadata = () if key is None else (("idempotency-key", key),)
    return (await ShippingServiceStub(channel).ShipOrder(REQUEST, metadata=metadata)).tracking_id


@pytest.mark.parametrize("key", ["key", None])
@pytest.mark.parametrize(("point", "states"), [("shipping.ship.before", []), ("shipping.ship.after", ["SHIPPED"])])
async def test_a_kill_before_or_after_a_shipment_leaves_no_partial_shipment(
    database_url: str, stored: Stored, point: str, states: list[str], key: str | None
) -> None:
    async with process(database_url, f"{point}=kill") as (running, channel):
        with pytest.raises(grpc.aio.AioRpcError):
            await ship(channel, key)
        assert await running.wait() == -signal.SIGKILL
    assert [state for _, state in stored(database_url)] == states


async def test_a_shipment_repeated_after_a_kill_is_not_shipped_again(database_url: str, stored: Stored) -> None:
    async with process(database_url, "shipping.ship.after=kill") as (_, channel):
        with pytest.raises(grpc.aio.AioRpcError):
            await ship(channel, "key")
    async with process(database_url) as (_, channel):
        await ship(channel, "key")
    assert stored(database_url) == [("key", "SHIPPED")]
