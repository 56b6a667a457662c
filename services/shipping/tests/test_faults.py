"""Service processes that are killed around a shipment."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest

from shop import address_pb2, cart_pb2, shipping_pb2
from shop.shipping_pb2_grpc import ShippingServiceStub

REQUEST = shipping_pb2.ShipOrderRequest(
    address=address_pb2.Address(street_address="Lindenweg 7", country="DE"),
    items=[cart_pb2.CartItem(product_id="pan", quantity=1)],
)


async def port_of(running: asyncio.subprocess.Process) -> int:
    """Wait until the service serves, and return its port."""
    assert running.stdout is not None
    async for line in running.stdout:
        event = json.loads(line)
        if event["event"] == "serving":
            return int(event["port"])
    pytest.fail("the service ended before it was serving")


@asynccontextmanager
async def process(
    manifest: Path, failpoints: str = ""
) -> AsyncIterator[tuple[asyncio.subprocess.Process, ShippingServiceStub]]:
    """Run the service in its own process, on a free port."""
    environment = {
        **os.environ,
        "HOST": "127.0.0.1",
        "PORT": "0",
        "DRAIN_SECONDS": "0",
        "SHIPMENTS_FILE": str(manifest),
        "FAILPOINTS": failpoints,
    }
    running = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "shipping_service", env=environment, stdout=asyncio.subprocess.PIPE
    )
    try:
        port = await port_of(running)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield running, ShippingServiceStub(channel)
    finally:
        if running.returncode is None:
            running.terminate()
        await running.communicate()


@pytest.mark.parametrize("metadata", [[("idempotency-key", "key")], []])
@pytest.mark.parametrize(("point", "lines"), [("shipping.ship.before", 0), ("shipping.ship.after", 1)])
async def test_a_kill_before_or_after_a_shipment_leaves_no_line_or_a_whole_one(
    tmp_path: Path, point: str, lines: int, metadata: list[tuple[str, str]]
) -> None:
    manifest = tmp_path / "shipments.jsonl"
    async with process(manifest, f"{point}=kill") as (running, stub):
        with pytest.raises(grpc.aio.AioRpcError):
            await stub.ShipOrder(REQUEST, metadata=metadata)
        assert await running.wait() == -signal.SIGKILL
    assert len(manifest.read_text().splitlines()) == lines


async def test_a_shipment_repeated_after_a_kill_has_the_same_tracking_id(tmp_path: Path) -> None:
    manifest = tmp_path / "shipments.jsonl"
    metadata = [("idempotency-key", "key")]
    async with process(manifest, "shipping.ship.after=kill") as (_, stub):
        with pytest.raises(grpc.aio.AioRpcError):
            await stub.ShipOrder(REQUEST, metadata=metadata)
    async with process(manifest) as (_, stub):
        shipped = await stub.ShipOrder(REQUEST, metadata=metadata)
    assert {json.loads(line)["tracking_id"] for line in manifest.read_text().splitlines()} == {shipped.tracking_id}
