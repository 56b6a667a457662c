"""The page that describes the API: complete, and readable in a browser on a phone."""

import re
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from employee_api.http.docs.page import every_error
from employee_api.http.problems import error_anchor
from employee_api.settings import AuthMode
from shop_lab.world.browser import accessibility_violations, open_tab, overflow, running_browser
from shop_lab.world.employee_api import LOCAL, Api, StartApi, serving


async def test_the_root_leads_to_the_page(api_on_sqlite: Api) -> None:
    response = await api_on_sqlite.client.get("/", follow_redirects=False)
    assert (response.status_code, response.headers["location"]) == (307, "/docs")


async def test_the_page_shows_every_operation_and_fetches_nothing(api_on_sqlite: Api) -> None:
    page = (await api_on_sqlite.client.get("/docs")).text
    described = (await api_on_sqlite.client.get("/openapi.json")).json()["paths"]
    assert all(f"<code>{path}</code>" in page for path in described)
    assert not re.search(r"""(src|href)=["'](https?:)?//|url\(|@import|<script""", page)


async def test_the_content_security_policy_of_the_page_allows_no_fetches(api_on_sqlite: Api) -> None:
    policy = (await api_on_sqlite.client.get("/docs")).headers["content-security-policy"]
    assert policy.startswith("default-src 'none'")


@pytest.mark.parametrize("mode", AuthMode)
async def test_every_link_leads_to_a_part_of_the_page(start_api_on_sqlite: StartApi, mode: AuthMode) -> None:
    async with start_api_on_sqlite(auth_mode=mode) as api:
        page = (await api.client.get("/docs")).text
    ids = re.findall(r' id="([^"]+)"', page)
    assert set(re.findall(r'href="#([^"]+)"', page)) <= set(ids)
    assert len(ids) == len(set(ids))


async def test_every_error_is_explained_where_its_type_leads(api_on_sqlite: Api) -> None:
    page = (await api_on_sqlite.client.get("/docs")).text
    assert [error for error in every_error() if f'id="{error_anchor(error.reason)}"' not in page] == []


async def test_the_errors_of_every_package_are_explained(api_on_sqlite: Api) -> None:
    page = (await api_on_sqlite.client.get("/docs")).text
    packages = ["AUTHENTICATION_REQUIRED", "NOT_FOUND", "USER_NOT_FOUND", "TOKEN_NOT_FOUND", "TASK_NOT_FOUND"]
    reasons = [*packages, "TOO_MANY_EXPORTS", "NOT_READY"]
    assert [reason for reason in reasons if f'id="{error_anchor(reason)}"' not in page] == []


def test_errors_are_explained_where_python_removes_docstrings() -> None:
    imports = "from employee_api.errors import NotReady; from employee_api.http.docs.page import meaning"
    command = [sys.executable, "-OO", "-c", f"{imports}; print(meaning(NotReady()))"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "its migrations have not run" in shown


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with running_browser() as running:
        yield running


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_the_page_is_accessible_and_fits_a_phone(
    browser: Browser, start_api_on_sqlite: StartApi, scheme: str
) -> None:
    async with serving(start_api_on_sqlite(auth_mode="enforce", **LOCAL)) as (_, address):
        phone = {"color_scheme": scheme, "viewport": {"width": 360, "height": 640}}
        async with open_tab(browser, address, **phone) as tab:
            await tab.page.goto("/")
            await tab.page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
            assert await tab.page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches") == (scheme == "dark")
            assert await overflow(tab.page) <= 0
            assert await accessibility_violations(tab.page) == []
            assert tab.problems == []
