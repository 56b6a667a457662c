"""Who may use the control room."""

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


async def page(_request: Request) -> Response:
    return PlainTextResponse("admitted")


@pytest.fixture
async def client() -> AsyncIterator[httpx2.AsyncClient]:
    routes = [Route("/{path:path}", page, methods=["GET", "POST"])]
    app = Starlette(routes=routes, middleware=access_control(PORT, TOKEN))
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url=ORIGIN) as opened:
        yield opened


@pytest.fixture
async def browser(client: httpx2.AsyncClient) -> httpx2.AsyncClient:
    """A client that has opened the link with the token."""
    await client.get("/", params={"token": TOKEN})
    return client


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer other"},
        {"Authorization": "Basic ???"},
        {"Authorization": "Digest"},
        {"Cookie": f"control-room-{PORT}=other"},
    ],
)
async def test_a_request_without_the_token_is_refused(client: httpx2.AsyncClient, headers: dict[str, str]) -> None:
    assert (await client.get("/", headers=headers)).status_code == 401


async def test_a_link_with_a_wrong_token_is_refused(client: httpx2.AsyncClient) -> None:
    assert (await client.get("/", params={"token": "other"})).status_code == 401


@pytest.mark.parametrize(
    "authorization", [f"Bearer {TOKEN}", f"Basic {base64.b64encode(f'shop:{TOKEN}'.encode()).decode()}"]
)
async def test_a_program_sends_the_token_as_a_bearer_token_or_a_password(
    client: httpx2.AsyncClient, authorization: str
) -> None:
    assert (await client.get("/", headers={"Authorization": authorization})).text == "admitted"


async def test_the_link_leads_to_the_page_without_the_token_and_sets_a_cookie(client: httpx2.AsyncClient) -> None:
    response = await client.get("/traces/1", params={"token": TOKEN})
    assert (response.status_code, response.headers["location"]) == (303, "/traces/1")
    assert {"HttpOnly", "SameSite=strict"} <= set(response.headers["set-cookie"].split("; "))


async def test_a_path_never_redirects_to_another_host(client: httpx2.AsyncClient) -> None:
    response = await client.get(f"{ORIGIN}//evil.example/", params={"token": TOKEN})
    assert response.headers["location"] == "/evil.example/"


async def test_a_host_that_is_not_this_machine_is_refused_even_with_the_token(browser: httpx2.AsyncClient) -> None:
    response = await browser.get("/", headers={**BEARER, "Host": f"rebound.example:{PORT}"})
    assert response.status_code == 421


@pytest.mark.parametrize("origin", [None, "null", "http://localhost:3000", "https://evil.example"])
async def test_a_change_by_a_browser_needs_the_own_origin(browser: httpx2.AsyncClient, origin: str | None) -> None:
    headers = {"Origin": origin} if origin else {}
    assert (await browser.post("/", headers=headers)).status_code == 403


async def test_a_browser_is_admitted_with_its_cookie_and_changes_from_the_own_page(browser: httpx2.AsyncClient) -> None:
    assert (await browser.get("/")).text == "admitted"
    assert (await browser.post("/", headers={"Origin": ORIGIN})).text == "admitted"


async def test_a_change_by_a_program_needs_no_origin_but_no_foreign_one(client: httpx2.AsyncClient) -> None:
    assert (await client.post("/", headers=BEARER)).text == "admitted"
    assert (await client.post("/", headers={**BEARER, "Origin": "https://evil.example"})).status_code == 403


async def test_every_response_has_a_policy_against_foreign_content(client: httpx2.AsyncClient) -> None:
    policy = (await client.get("/")).headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
