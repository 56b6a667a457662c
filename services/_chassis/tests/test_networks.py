"""Services are reached over both versions of IP, where a machine has both."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from chassis.http import server as http_server
from chassis.http.server import HttpService, HttpServiceSettings
from chassis.rpc import client
from chassis.telemetry import semconv
from chassis.telemetry.instruments import Telemetry
from shop import cart_pb2, cart_pb2_grpc
from shop_kit.carts import REGISTER, Carts
from shop_kit.serving import serve
from shop_kit.settings import load_settings

ipv6 = pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="IPv6 is off")
# How people write all addresses of a machine; None is the default.
HOSTS = [None, "0.0.0.0", pytest.param("::", marks=ipv6), pytest.param("[::]", marks=ipv6)]


async def show_client(request: Request) -> Response:
    assert request.client
    return PlainTextResponse(request.client.host)


@asynccontextmanager
async def http_service(**settings: Any) -> AsyncIterator[int]:
    service = HttpService(load_settings(HttpServiceSettings, settings), Telemetry())

    @asynccontextmanager
    async def build() -> AsyncIterator[Starlette]:
        yield Starlette(routes=[Route("/", show_client)])

    async with http_server.serving(service, build()) as ports:
        yield ports["port"]


async def client_seen(address: str, port: int, **headers: str) -> str:
    """Return the client's address as the service at this address sees it."""
    host = f"[{address}]" if ":" in address else address
    async with httpx2.AsyncClient(base_url=f"http://{host}:{port}", headers=headers) as opened:
        return (await opened.get("/")).text


async def cart_at(address: str) -> tuple[str, str]:
    """Call a cart service; return the user of the cart, and the address in the metric of the call."""
    telemetry = Telemetry()
    channel = client.channel(address, "shop.CartService", timeout_seconds=5, telemetry=telemetry)
    cart = await cart_pb2_grpc.CartServiceStub(channel).GetCart(cart_pb2.GetCartRequest(user_id="u"))
    await channel.close()
    [attributes] = telemetry.histogram(semconv.RPC_CLIENT_DURATION).series
    return cart.user_id, str(dict(attributes)["server.address"])


@pytest.mark.parametrize("host", HOSTS)
async def test_an_http_service_on_all_addresses_sees_the_addresses_of_ipv4_clients(host: str | None) -> None:
    async with http_service(host=host) as port:
        assert await client_seen("127.0.0.1", port) == "127.0.0.1"


@pytest.mark.parametrize("host", HOSTS)
async def test_a_grpc_service_on_all_addresses_is_reached_over_ipv4(host: str | None) -> None:
    async with serve((REGISTER, Carts()), host=host) as address:
        assert await cart_at(address) == ("u", "127.0.0.1")


@ipv6
@pytest.mark.parametrize("host", [None, "::1", "[::1]"])
async def test_services_are_reached_over_ipv6(host: str | None) -> None:
    async with http_service(host=host) as port, serve((REGISTER, Carts()), host=host) as address:
        assert await client_seen("::1", port) == "::1"
        assert await cart_at(f"[::1]:{address.rpartition(':')[2]}") == ("u", "::1")


async def test_where_ipv6_is_off_an_http_service_listens_on_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "has_ipv6", False)
    async with http_service(host=None) as port:
        assert await client_seen("127.0.0.1", port) == "127.0.0.1"


@ipv6
@pytest.mark.parametrize(("address", "trusted"), [("127.0.0.1", "127.0.0.0/8"), ("::1", "::1/128")])
async def test_a_proxy_of_either_version_is_trusted(address: str, trusted: str) -> None:
    async with http_service(host=None, trusted_proxies=trusted) as port:
        assert await client_seen(address, port, **{"x-forwarded-for": "198.51.100.7"}) == "198.51.100.7"
