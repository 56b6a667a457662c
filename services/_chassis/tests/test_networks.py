import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
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
from shop_kit.carts import Carts
from shop_kit.serving import serve
from shop_kit.settings import load_settings

ipv6 = pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="IPv6 is off")
# Spellings of "all addresses of this machine"; None leaves HOST unset.
HOSTS = [None, "0.0.0.0", pytest.param("::", marks=ipv6), pytest.param("[::]", marks=ipv6)]


async def show_client(request: Request) -> Response:
    assert request.client
    return PlainTextResponse(request.client.host)


APP = Starlette(routes=[Route("/", show_client)])


def service_with(**settings: Any) -> HttpService:
    return HttpService(load_settings(HttpServiceSettings, settings), Telemetry())


@asynccontextmanager
async def http_service(**settings: Any) -> AsyncIterator[int]:
    async with http_server.serving(service_with(**settings), nullcontext(APP)) as ports:
        yield ports["port"]


async def client_seen(address: str, port: int) -> str:
    """Call the service at this address, and return the client address that the service sees."""
    host = f"[{address}]" if ":" in address else address
    async with httpx2.AsyncClient() as opened:
        return (await opened.get(f"http://{host}:{port}")).text


async def cart_at(address: str) -> tuple[str, str]:
    """Call a cart service. Return the cart's user and the server address in the call's metric."""
    telemetry = Telemetry()
    channel = client.channel(address, "shop.CartService", timeout_seconds=60, telemetry=telemetry)
    cart = await cart_pb2_grpc.CartServiceStub(channel).GetCart(cart_pb2.GetCartRequest(user_id="u"))
    await channel.close()
    [attributes] = telemetry.histogram(semconv.RPC_CLIENT_DURATION).series
    return cart.user_id, str(dict(attributes)["server.address"])


@pytest.mark.parametrize("host", HOSTS)
async def test_services_on_all_addresses_are_reached_over_ipv4_and_see_client_addresses(host: str | None) -> None:
    async with http_service(host=host) as port, serve(Carts(), host=host) as address:
        assert await client_seen("127.0.0.1", port) == "127.0.0.1"
        assert await cart_at(address) == ("u", "127.0.0.1")


@ipv6
@pytest.mark.parametrize("host", [None, "::1", "[::1]"])
async def test_services_are_reached_over_ipv6(host: str | None) -> None:
    async with http_service(host=host) as port, serve(Carts(), host=host) as address:
        assert await client_seen("::1", port) == "::1"
        assert await cart_at(f"[::1]:{address.rpartition(':')[2]}") == ("u", "::1")


async def test_where_ipv6_is_off_an_http_service_listens_on_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "has_ipv6", False)
    async with http_service(host=None) as port:
        assert await client_seen("127.0.0.1", port) == "127.0.0.1"


async def response_to(connection: str, trusted: str, *headers: tuple[str, str]) -> httpx2.Response:
    transport = httpx2.ASGITransport(service_with(trusted_proxies=trusted).wrap(APP), client=(connection, 1234))
    async with httpx2.AsyncClient(transport=transport, base_url="http://test") as client:
        return await client.get("/", headers=[*headers])


CLIENT = "198.51.100.7"


@pytest.mark.parametrize(
    ("connection", "trusted", "forwarded", "client"),
    [
        # By default, and from any other address, the header is ignored.
        *((address, "", [CLIENT], address) for address in ("127.0.0.1", "10.0.0.1", "203.0.113.9")),
        ("203.0.113.9", "10.0.0.0/8", [CLIENT], "203.0.113.9"),
        ("10.0.0.1", "10.0.0.0/8", [CLIENT], CLIENT),
        ("10.0.0.1", "10.0.0.1", [CLIENT], CLIENT),
        ("::1", "::1/128", [CLIENT], CLIENT),
        ("10.0.0.1", "192.0.2.1, 10.0.0.0/8,", [CLIENT], CLIENT),
        ("2001:db8::1", "10.0.0.0/8,2001:db8::/64", [CLIENT], CLIENT),
        # Clients may invent the addresses before the last untrusted address.
        ("10.0.0.1", "10.0.0.0/8", [f"192.0.2.66, {CLIENT}"], CLIENT),
        ("10.0.0.1", "10.0.0.0/8", ["192.0.2.66", CLIENT], CLIENT),
        ("10.0.0.1", "10.0.0.0/8", [f"'; DROP TABLE, {CLIENT}"], CLIENT),
        ("10.0.0.1", "10.0.0.0/8", [f"127.0.0.1, {CLIENT}, 10.0.0.2"], CLIENT),
        # The client is in the network of the proxies.
        ("10.0.0.1", "10.0.0.0/8", ["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
        ("10.0.0.1", "10.0.0.0/8", ["2001:db8::7"], "2001:db8::7"),
        # The last address is missing.
        ("10.0.0.1", "10.0.0.0/8", [""], "10.0.0.1"),
        ("10.0.0.1", "10.0.0.0/8", [f"{CLIENT},"], "10.0.0.1"),
    ],
)
async def test_the_client_is_the_last_address_that_is_no_trusted_proxy(
    connection: str, trusted: str, forwarded: list[str], client: str
) -> None:
    response = await response_to(connection, trusted, *(("x-forwarded-for", line) for line in forwarded))
    assert response.text == client


@pytest.mark.parametrize(
    ("trusted", "scheme", "expected"),
    [("10.0.0.1", "https", "max-age=31536000"), ("10.0.0.1", "http", None), ("", "https", None)],
)
async def test_browsers_are_told_to_use_tls_where_a_trusted_proxy_says_that_they_do(
    trusted: str, scheme: str, expected: str | None
) -> None:
    response = await response_to("10.0.0.1", trusted, ("x-forwarded-proto", scheme))
    assert response.headers.get("strict-transport-security") == expected


@pytest.mark.parametrize("value", ["10.0.0.0/33", "proxy.example.com", "10.0.0.1/8", "*"])
def test_an_invalid_setting_is_an_error(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        load_settings(HttpServiceSettings, {"trusted_proxies": value})
    assert "TRUSTED_PROXIES: must be addresses or networks" in capsys.readouterr().err
