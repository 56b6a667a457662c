import base64
from collections.abc import AsyncIterator

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from shop_cli.control_room.access import access_control

PORT = 8090
ORIGIN = f"http://localhost:{PORT}"
TOKEN = "the-token"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
BASIC = {"Authorization": f"Basic {base64.b64encode(f'shop:{TOKEN}'.encode()).decode()}"}
COOKIE = {"Cookie": f"control-room-{PORT}={TOKEN}"}
FOREIGN_ORIGINS = [{"Origin": origin} for origin in ("null", "http://localhost:3000", "https://evil.example")]


async def page(_request: Request) -> Response:
    return PlainTextResponse("admitted")


@pytest.fixture
async def client() -> AsyncIterator[httpx2.AsyncClient]:
    routes = [Route("/{path:path}", page, methods=["GET", "POST"])]
    app = Starlette(routes=routes, middleware=access_control(PORT, TOKEN))
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url=ORIGIN) as opened:
        yield opened


@pytest.mark.parametrize(
    ("method", "headers"),
    [("GET", BEARER), ("GET", BASIC), ("GET", COOKIE), ("POST", BEARER), ("POST", {**COOKIE, "Origin": ORIGIN})],
)
async def test_programs_with_the_token_and_browsers_with_its_cookie_are_admitted(
    client: httpx2.AsyncClient, method: str, headers: dict[str, str]
) -> None:
    assert (await client.request(method, "/", headers=headers)).text == "admitted"


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("GET", {}, 401),
        *(("GET", {"Authorization": value}, 401) for value in ("Bearer other", "Basic ???", "Digest")),
        ("GET", {"Cookie": f"control-room-{PORT}=other"}, 401),
        ("GET", {**BEARER, **COOKIE, "Host": f"rebound.example:{PORT}"}, 421),
        ("POST", COOKIE, 403),
        *(("POST", {**COOKIE, **origin}, 403) for origin in FOREIGN_ORIGINS),
        ("POST", {**BEARER, "Origin": "https://evil.example"}, 403),
    ],
)
async def test_what_has_no_token_or_comes_from_another_host_or_page_is_refused(
    client: httpx2.AsyncClient, method: str, headers: dict[str, str], status: int
) -> None:
    assert (await client.request(method, "/", headers=headers)).status_code == status


async def test_the_link_leads_to_the_page_without_the_token_and_sets_a_cookie_that_admits(
    client: httpx2.AsyncClient,
) -> None:
    assert (await client.get("/", params={"token": "other"})).status_code == 401
    response = await client.get("/traces/1", params={"token": TOKEN})
    assert (response.status_code, response.headers["location"]) == (303, "/traces/1")
    assert {"HttpOnly", "SameSite=strict"} <= set(response.headers["set-cookie"].split("; "))
    assert (await client.get("/traces/1")).text == "admitted"


async def test_a_path_never_redirects_to_another_host(client: httpx2.AsyncClient) -> None:
    response = await client.get(f"{ORIGIN}//evil.example/", params={"token": TOKEN})
    assert response.headers["location"] == "/evil.example/"


async def test_every_response_has_a_policy_against_foreign_content(client: httpx2.AsyncClient) -> None:
    policy = (await client.get("/")).headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
