"""Pages of another origin and the employee API, in a real browser: what they can send, and what it changes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page
from starlette.responses import HTMLResponse

from chassis.http import server
from chassis.http.server import HttpService, HttpServiceSettings
from chassis.sql.migrate import migrate
from chassis.telemetry.instruments import Telemetry
from employee_api.database import MIGRATIONS
from shop_kit.employee_api import LOCAL, PASSWORD, Api, Clock, api_starter, serving

LOG_IN = """
    async (credentials) => {
        const headers = {"content-type": "application/json"};
        const body = JSON.stringify(credentials);
        return (await fetch("/api/auth/login", {method: "POST", headers, body})).status;
    }
"""
# Requests that browsers send without a preflight: a form, and fetches of its content type.
ATTACK = """
    async (api) => {
        const frame = document.createElement("iframe");
        frame.name = "hidden";
        document.body.append(frame);
        const form = document.body.appendChild(document.createElement("form"));
        Object.assign(form, {method: "post", action: `${api}/api/tasks`, enctype: "text/plain", target: frame.name});
        form.innerHTML = `<input name='{"title": "form' value='"}'>`;
        const answered = new Promise((resolve) => frame.addEventListener("load", resolve));
        form.submit();
        await answered;
        const send = (method, path, options) => fetch(`${api}${path}`, {method, credentials: "include", ...options});
        await send("POST", "/api/tasks", {mode: "no-cors", body: '{"title": "no-cors"}'});
        const read = await send("POST", "/api/tasks", {body: '{"title": "cors"}'}).catch((error) => error.name);
        const deleted = await send("DELETE", "/api/tasks/1").catch((error) => error.name);
        return [read, deleted];
    }
"""
USE = """
    async (api) => {
        const send = (method, path, options) => fetch(`${api}${path}`, {method, credentials: "include", ...options});
        const headers = {"content-type": "application/json"};
        const created = await send("POST", "/api/tasks", {headers, body: '{"title": "allowed"}'});
        const {id} = await created.json();
        const deleted = await send("DELETE", `/api/tasks/${id}`);
        return [created.status, created.headers.has("x-request-id"), deleted.status];
    }
"""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def foreign_port() -> AsyncIterator[int]:
    """The port of an empty page, which makes it another origin than the API's."""
    service = HttpService(HttpServiceSettings(**LOCAL), Telemetry())
    async with server.serving(service, nullcontext(HTMLResponse("<!doctype html><body>"))) as ports:
        yield ports["port"]


@asynccontextmanager
async def foreign_page(
    browser: Browser, foreign_port: int, folder: Path, **settings: Any
) -> AsyncIterator[tuple[Page, Api, int]]:
    """Yield a page of another origin in a browser whose user is logged in to an API, the API, and its port."""
    url = f"sqlite:///{folder / 'employee-api.db'}"
    migrate(url, MIGRATIONS)
    async with serving(api_starter(url, Clock())(**LOCAL, **settings)) as (api, address):
        await api.store_user("ceo@x", "ceo")
        port = int(address.rpartition(":")[2])
        context = await browser.new_context()
        page = await context.new_page()
        await page.goto(f"http://localhost:{port}/openapi.json")
        assert await page.evaluate(LOG_IN, {"email": "ceo@x", "password": PASSWORD}) == 200
        await page.goto(f"http://localhost:{foreign_port}/")
        yield page, api, port
        await context.close()


# The same site with its cookie, without sessions too, and another site.
@pytest.mark.parametrize(("mode", "host"), [("enforce", "localhost"), ("off", "localhost"), ("enforce", "127.0.0.1")])
async def test_a_page_of_another_origin_changes_nothing(
    browser: Browser, foreign_port: int, tmp_path: Path, mode: str, host: str
) -> None:
    async with foreign_page(browser, foreign_port, tmp_path, auth_mode=mode) as (page, api, port):
        assert await page.evaluate(ATTACK, f"http://{host}:{port}") == ["TypeError", "TypeError"]
        assert await api.execute("SELECT * FROM tasks") == []


async def test_without_the_check_the_same_requests_create_tasks(
    browser: Browser, foreign_port: int, tmp_path: Path
) -> None:
    settings = {"allow_cross_site": True, "auth_mode": "observe"}
    async with foreign_page(browser, foreign_port, tmp_path, **settings) as (page, api, port):
        assert await page.evaluate(ATTACK, f"http://localhost:{port}") == ["TypeError", "TypeError"]
        created = await api.execute("SELECT title FROM tasks WHERE reporter_id IS NOT NULL")  # the session's user
        assert {task["title"] for task in created} == {"form=", "no-cors", "cors"}


async def test_a_page_of_an_allowed_origin_uses_the_api_with_its_session(
    browser: Browser, foreign_port: int, tmp_path: Path
) -> None:
    settings = {"auth_mode": "enforce", "allowed_origins": f"http://localhost:{foreign_port}"}
    async with foreign_page(browser, foreign_port, tmp_path, **settings) as (page, _, port):
        assert await page.evaluate(USE, f"http://localhost:{port}") == [201, True, 200]
