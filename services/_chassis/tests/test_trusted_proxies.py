"""The client's address behind proxies, over the ASGI interface: every connection comes from the client's transport."""

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from chassis.http.server import HttpService, HttpServiceSettings
from chassis.telemetry.instruments import Telemetry
from shop_kit.settings import load_settings


async def show_client(request: Request) -> Response:
    assert request.client
    return PlainTextResponse(request.client.host)


async def client_address(connection: str, trusted: str, *forwarded: str) -> str:
    """Return the address that the application sees, of a request with these lines of X-Forwarded-For."""
    settings = load_settings(HttpServiceSettings, {"trusted_proxies": trusted})
    service = HttpService(settings, Telemetry())
    app = service.wrap(Starlette(routes=[Route("/", show_client)]))
    transport = httpx2.ASGITransport(app, client=(connection, 1234))
    async with httpx2.AsyncClient(transport=transport, base_url="http://test") as client:
        return (await client.get("/", headers=[("x-forwarded-for", line) for line in forwarded])).text


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


async def test_networks_of_both_versions_are_trusted() -> None:
    assert await client_address("2001:db8::1", "10.0.0.0/8,2001:db8::/64", "198.51.100.7") == "198.51.100.7"


@pytest.mark.parametrize("value", ["10.0.0.0/33", "proxy.example.com", "10.0.0.1/8", "*"])
def test_an_invalid_setting_is_an_error(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        load_settings(HttpServiceSettings, {"trusted_proxies": value})
    assert "TRUSTED_PROXIES: must be addresses or networks" in capsys.readouterr().err
