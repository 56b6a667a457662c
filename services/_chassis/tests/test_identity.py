"""Who may call what by mutual TLS, and what becomes of certificates that are replaced while calls are made."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from chassis.errors import Unavailable
from chassis.rpc import client, server
from chassis.settings import ServiceSettings
from chassis.telemetry.instruments import Telemetry
from chassis.tls.authority import Authority
from chassis.tls.certificates import Certificates
from shop import cart_pb2
from shop.cart_pb2_grpc import CartServiceStub
from shop_kit.carts import REGISTER, Carts
from shop_kit.certificates import new_authority, renew, spiffe_id
from shop_kit.metrics import measured
from shop_kit.settings import load_settings

GET = cart_pb2.GetCartRequest(user_id="u")
ALLOWED = {spiffe_id("checkout"): ["shop.CartService/GetCart"]}


@pytest.fixture(scope="module")
def authority() -> Authority:
    return new_authority()


@asynccontextmanager
async def serving(
    folder: Path, carts: Carts | None = None, telemetry: Telemetry | None = None, **settings: Any
) -> AsyncIterator[server.Service]:
    values = {"tls_folder": folder, "allowed_calls": json.dumps(ALLOWED), **settings}
    service = server.Service(load_settings(ServiceSettings, values), telemetry or Telemetry())
    service.add_servicer(REGISTER, carts or Carts())
    await service.start()
    try:
        yield service
    finally:
        await service.channels.aclose()
        await service.drain()


@asynccontextmanager
async def calling(service: server.Service, folder: Path) -> AsyncIterator[CartServiceStub]:
    certificates = Certificates.load(str(folder))
    channel = client.channel(
        f"localhost:{service.port}", "shop.CartService", timeout_seconds=5, certificates=certificates
    )
    yield CartServiceStub(channel)
    await channel.close()


async def test_a_caller_may_make_the_calls_that_the_table_lists_and_no_others(
    authority: Authority, tmp_path: Path
) -> None:
    telemetry, read = measured()
    callers = {name: renew(tmp_path / name, authority, name) for name in ("checkout", "cart")}
    async with serving(callers["cart"], telemetry=telemetry) as service:
        async with calling(service, callers["checkout"]) as listed:
            assert (await listed.GetCart(GET)).user_id == "u"
            with pytest.raises(Unavailable) as refusal:
                await listed.AddItem(cart_pb2.AddItemRequest(user_id="u"))
        assert refusal.value.reason == "CALLER_NOT_ALLOWED"
        async with calling(service, callers["cart"]) as unlisted:
            for _ in range(2):
                with pytest.raises(Unavailable, match=r"shop.CartService/GetCart: ALLOWED_CALLS does not list it"):
                    await unlisted.GetCart(GET)
    denied = {
        dict(attributes)["rpc.method"]: value
        for (name, *attributes), value in read().items()
        if name == "shop.server.denied_requests"
    }
    assert denied == {"shop.CartService/GetCart": 2, "shop.CartService/AddItem": 1, "shop.CartService/EmptyCart": 0}


async def test_health_is_served_in_plaintext_on_a_port_of_its_own(authority: Authority, tmp_path: Path) -> None:
    async with serving(renew(tmp_path / "tls", authority, "cart")) as service:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{service.health_port}") as plain:
            health: Any = health_pb2_grpc.HealthStub(plain)
            for name in ("", "liveness", "shop.CartService"):
                response = await health.Check(health_pb2.HealthCheckRequest(service=name))
                assert response.status == health_pb2.HealthCheckResponse.SERVING
            with pytest.raises(grpc.aio.AioRpcError) as refusal:
                await CartServiceStub(plain).GetCart(GET)
        assert refusal.value.code() is grpc.StatusCode.UNIMPLEMENTED
