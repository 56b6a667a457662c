"""The page that describes the API: complete, and readable in a browser on a phone."""

import re

import pytest

from employee_api.errors import ApiError
from employee_api.http.problems import error_anchor
from shop_kit.browser import accessibility_violations, open_tab, overflow, running_browser
from shop_kit.employee_api import LOCAL, MODES, StartApi, serving


@pytest.mark.parametrize("mode", MODES)
async def test_the_root_leads_to_a_page_that_shows_all_and_fetches_nothing(start_api: StartApi, mode: str) -> None:
    async with start_api(auth_mode=mode) as api:
        root = await api.client.get("/", follow_redirects=False)
        assert (root.status_code, root.headers["location"]) == (307, "/docs")
        response = await api.client.get("/docs")
        described = (await api.client.get("/openapi.json")).json()["paths"]
    assert response.headers["content-security-policy"].startswith("default-src 'none'")
    page = response.text
    assert all(f"<code>{path}</code>" in page for path in described)
    assert not re.search(r"""(src|href)=["'](https?:)?//|url\(|@import|<script""", page)
    ids = re.findall(r' id="([^"]+)"', page)
    assert set(re.findall(r'href="#([^"]+)"', page)) <= set(ids)
    assert len(ids) == len(set(ids))
    assert {error_anchor(kind().reason) for kind in ApiError.__subclasses__()} <= set(ids)


async def test_the_page_is_accessible_and_fits_a_phone(start_api: StartApi) -> None:
    async with running_browser() as browser, serving(start_api(auth_mode="enforce", **LOCAL)) as (_, address):
        for scheme, rules in (("light", ()), ("dark", ("color-contrast",))):
            phone = {"color_scheme": scheme, "viewport": {"width": 360, "height": 640}}
            async with open_tab(browser, address, **phone) as tab:
                await tab.page.goto("/")
                await tab.page.evaluate("document.querySelectorAll('details').forEach(part => part.open = true)")
                is_dark = await tab.page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
                assert is_dark == (scheme == "dark")
                assert await overflow(tab.page) <= 0
                alike = "details:nth-of-type(n + 4)"  # operations differ in text alone
                await tab.page.evaluate(f"document.querySelectorAll('{alike}').forEach(part => part.remove())")
                assert await accessibility_violations(tab.page, *rules) == []
                assert tab.problems == []
