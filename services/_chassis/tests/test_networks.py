"""Services are reached over both versions of IP, where a machine has both; which proxies are believed."""

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
    channel = client.channel(address, "shop.CartService", timeout_seconds=60, telemetry=telemetry)
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


async def response_to(connection: str, trusted: str, *headers: tuple[str, str]) -> httpx2.Response:
    """Return the response to a request from an address, by a service that trusts these proxies."""
    settings = load_settings(HttpServiceSettings, {"trusted_proxies": trusted})
    app = HttpService(settings, Telemetry()).wrap(Starlette(routes=[Route("/", show_client)]))
    transport = httpx2.ASGITransport(app, client=(connection, 1234))
    async with httpx2.AsyncClient(transport=transport, base_url="http://test") as client:
        return await client.get("/", headers=[*headers])


async def client_address(connection: str, trusted: str, *forwarded: str) -> str:
    """Return the address that the application sees, of a request with these lines of X-Forwarded-For."""
    return (await response_to(connection, trusted, *(("x-forwarded-for", line) for line in forwarded))).text


@pytest.mark.parametrize(
    ("connection", "trusted"),
    [("127.0.0.1", ""), ("10.0.0.1", ""), ("203.0.113.9", ""), ("203.0.113.9", "10.0.0.0/8")],
)
async def test_nothing_is_believed_by_default_or_from_other_addresses(connection: str, trusted: str) -> None:
    assert await client_address(connection, trusted, "198.51.100.7") == connection


@pytest.mark.parametrize(
    ("trusted", "forwarded", "client"),
    [
        ("10.0.0.0/8", ["198.51.100.7"], "198.51.100.7"),
        ("10.0.0.1", ["198.51.100.7"], "198.51.100.7"),
        ("192.0.2.1, 10.0.0.0/8,", ["198.51.100.7"], "198.51.100.7"),
        # What comes before the last untrusted address may be invented.
        ("10.0.0.0/8", ["192.0.2.66, 198.51.100.7"], "198.51.100.7"),
        ("10.0.0.0/8", ["192.0.2.66", "198.51.100.7"], "198.51.100.7"),
        ("10.0.0.0/8", ["'; DROP TABLE, 198.51.100.7"], "198.51.100.7"),
        ("10.0.0.0/8", ["127.0.0.1, 198.51.100.7, 10.0.0.2"], "198.51.100.7"),
        # A client among the proxies.
        ("10.0.0.0/8", ["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
        ("10.0.0.0/8", ["2001:db8::7"], "2001:db8::7"),
        # No address at all.
        ("10.0.0.0/8", [""], "10.0.0.1"),
        ("10.0.0.0/8", ["198.51.100.7,"], "10.0.0.1"),
    ],
)
async def test_the_client_is_the_last_address_that_is_no_trusted_proxy(
    trusted: str, forwarded: list[str], client: str
) -> None:
    assert await client_address("10.0.0.1", trusted, *forwarded) == client


@pytest.mark.parametrize(
    ("trusted", "scheme", "expected"),
    [("10.0.0.1", "https", "max-age=31536000"), ("10.0.0.1", "http", None), ("", "https", None)],
)
async def test_browsers_are_told_to_use_tls_where_a_trusted_proxy_says_that_they_do(
    trusted: str, scheme: str, expected: str | None
) -> None:
    response = await response_to("10.0.0.1", trusted, ("x-forwarded-proto", scheme))
    assert response.headers.get("strict-transport-security") == expected


async def test_networks_of_both_versions_are_trusted() -> None:
    assert await client_address("2001:db8::1", "10.0.0.0/8,2001:db8::/64", "198.51.100.7") == "198.51.100.7"


@pytest.mark.parametrize("value", ["10.0.0.0/33", "proxy.example.com", "10.0.0.1/8", "*"])
def test_an_invalid_setting_is_an_error(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        load_settings(HttpServiceSettings, {"trusted_proxies": value})
    assert "TRUSTED_PROXIES: must be addresses or networks" in capsys.readouterr().err
