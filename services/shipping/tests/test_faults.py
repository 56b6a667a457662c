"""Service processes that are killed around a shipment."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from shop import address_pb2, cart_pb2, shipping_pb2
from shop.shipping_pb2_grpc import ShippingServiceStub
from shop_internal.shipment_manifest_pb2 import ResolveShipmentRequest
from shop_internal.shipment_manifest_pb2_grpc import ShipmentManifestStub

Stored = Callable[[str], list[tuple[Any, ...]]]

REQUEST = shipping_pb2.ShipOrderRequest(
    address=address_pb2.Address(street_address="Lindenweg 7", country="DE"),
    items=[cart_pb2.CartItem(product_id="pan", quantity=1)],
)


async def port_of(running: asyncio.subprocess.Process, name: str) -> int:
    """Wait until the service serves, and return its `port` or `internal_port`."""
    assert running.stdout is not None
    async for line in running.stdout:
        event = json.loads(line)
        if event["event"] == "serving":
            return int(event[name])
    pytest.fail("the service ended before it was serving")


@asynccontextmanager
async def process(
    url: str, failpoints: str = "", *, port_name: str = "port"
) -> AsyncIterator[tuple[asyncio.subprocess.Process, grpc.aio.Channel]]:
    """Run the service in its own process, on free ports; yield it with a channel to one of them."""
    environment = {
        **os.environ,
        "HOST": "127.0.0.1",
        "PORT": "0",
        "INTERNAL_PORT": "0",
        "DRAIN_SECONDS": "0",
        "DATABASE_URL": url,
        "FAILPOINTS": failpoints,
    }
    running = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "shipping_service", env=environment, stdout=asyncio.subprocess.PIPE
    )
    try:
        port = await port_of(running, port_name)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield running, channel
    finally:
        if running.returncode is None:
            running.terminate()
        await running.communicate()


async def ship(channel: grpc.aio.Channel, key: str | None) -> str:
    metadata = () if key is None else (("idempotency-key", key),)
    return (await ShippingServiceStub(channel).ShipOrder(REQUEST, metadata=metadata)).tracking_id


@pytest.mark.parametrize("key", ["key", None])
@pytest.mark.parametrize(("point", "states"), [("shipping.ship.before", []), ("shipping.ship.after", ["SHIPPED"])])
async def test_a_kill_before_or_after_a_shipment_leaves_no_partial_shipment(
    manifest_url: str, stored: Stored, point: str, states: list[str], key: str | None
) -> None:
    async with process(manifest_url, f"{point}=kill") as (running, channel):
        with pytest.raises(grpc.aio.AioRpcError):
            await ship(channel, key)
        assert await running.wait() == -signal.SIGKILL
    assert [state for _, state in stored(manifest_url)] == states


async def test_a_shipment_repeated_after_a_kill_is_not_shipped_again(manifest_url: str, stored: Stored) -> None:
    async with process(manifest_url, "shipping.ship.after=kill") as (_, channel):
        with pytest.raises(grpc.aio.AioRpcError):
            await ship(channel, "key")
    async with process(manifest_url) as (_, channel):
        await ship(channel, "key")
    assert stored(manifest_url) == [("key", "SHIPPED")]


async def test_a_fence_survives_a_kill_of_its_process(sqlite_url: str) -> None:
    async with process(sqlite_url, "shipping.resolve_or_fence.after=kill", port_name="internal_port") as (_, channel):
        with pytest.raises(grpc.aio.AioRpcError):
            await ShipmentManifestStub(channel).ResolveOrFence(ResolveShipmentRequest(shipment_key="key"))
    async with process(sqlite_url) as (_, channel):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await ship(channel, "key")
    assert refused.value.code() is grpc.StatusCode.ABORTED
