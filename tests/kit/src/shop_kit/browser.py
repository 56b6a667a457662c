"""A real browser for tests of the storefront: finds one, and opens tabs that record what goes wrong in them."""

import os
import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import NoReturn
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import (
    Browser,
    BrowserContext,
    BrowserType,
    ConsoleMessage,
    Page,
    Request,
    Response,
    ViewportSize,
    async_playwright,
    expect,
)

from shop_kit.card_leaks import random_card
from shop_kit.waiting import PATIENCE_SECONDS

DESK, PHONE = ViewportSize(width=1280, height=900), ViewportSize(width=360, height=740)

_INSTALLED = ("chromium", "chromium-browser", "google-chrome")
_REQUIRED = "REQUIRE_BROWSER"
_PATIENCE_MILLISECONDS = PATIENCE_SECONDS * 1000
_ABORTED = "net::ERR_ABORTED"
# Chromium logs it for every response with an error status, also for pages that have one.
_FAILED_RESPONSE = "Failed to load resource"


@asynccontextmanager
async def running_browser() -> AsyncIterator[Browser]:
    """Start an installed Chromium, else the one that Playwright has downloaded.

    Without one, or one that cannot run, skip the test; if the variable REQUIRE_BROWSER is set, fail it.
    """
    expect.set_options(timeout=_PATIENCE_MILLISECONDS)
    async with AsyncExitStack() as stack:
        try:
            playwright = await stack.enter_async_context(async_playwright())
            executable = _executable(playwright.chromium)
            # Debian's flags ask for a GPU, and emulating one costs more than painting without.
            browser = await playwright.chromium.launch(executable_path=executable, args=["--disable-gpu"])
        except Exception as error:  # noqa: BLE001 - Playwright raises a plain one if its driver ends
            _give_up(f"no browser starts, install the package chromium: {str(error).splitlines()[0]}")
        yield browser
        await browser.close()


def _executable(chromium: BrowserType) -> str:
    """Return the path of a browser that runs: one without its libraries prints which it misses, and ends."""
    paths = (path for path in (*map(shutil.which, _INSTALLED), chromium.executable_path) if path)
    found = next((path for path in paths if Path(path).exists()), "")
    if not found:
        _give_up("no browser is installed: install the package chromium, or run playwright install chromium")
    started = subprocess.run([found, "--version"], capture_output=True, text=True, check=False)
    if started.returncode:
        _give_up(f"{found} does not run: {started.stderr.strip()}")
    return found


def _give_up(reason: str) -> NoReturn:
    if os.environ.get(_REQUIRED):
        pytest.fail(reason)
    pytest.skip(reason)


class Tab:
    """A page of the shop, in a browser context with cookies of its own.

    Attributes:
        problems: errors of scripts, violations of the content security policy, requests to other origins, and files
            that could not be loaded.
    """

    def __init__(self, context: BrowserContext, page: Page, origin: str) -> None:
        self.context = context
        self.page = page
        self.problems: list[str] = []
        self._origin = origin
        page.on("console", self._record_message)
        page.on("pageerror", lambda error: self.problems.append(f"{page.url}: {error.message}"))
        page.on("request", self._record_request)
        page.on("requestfailed", self._record_failure)
        page.on("response", self._record_response)

    async def add_to_cart(self, product_id: str = "copper-kettle", quantity: int = 1) -> None:
        await self.page.goto(f"/products/{product_id}")
        await self.page.get_by_label("Quantity").fill(str(quantity))
        await self.page.get_by_role("button", name="Add to cart").click()
        await expect(self.page).to_have_url(re.compile(r"/cart\?"))

    async def fill_checkout_form(self, card: str) -> None:
        """Open the checkout form, have the total shown, and fill in every field."""
        await self.page.goto("/checkout")
        proceed = self.page.get_by_role("button", name="Continue")
        if await proceed.is_visible():  # else this visitor has entered an address
            await self.fill_in(ADDRESS)
            await proceed.click()
        await self.fill_in(card_fields(card))

    async def fill_in(self, texts: Mapping[str, str]) -> None:
        """Fill in fields by their labels."""
        for label, text in texts.items():
            found = self.page.get_by_label(label, exact=False)
            await (found.select_option(text) if label == "Country" else found.fill(text))

    async def prepare_order(self, card: str = "") -> None:
        """Fill a cart and the checkout form, by default with a random card."""
        await self.add_to_cart()
        await self.fill_checkout_form(card or random_card("4"))

    async def place_order(self) -> str:
        """Send the checkout form, and return the id of the order whose page opens."""
        await self.page.get_by_role("button", name="Place order").click()
        return await self.order_id()

    async def order_id(self) -> str:
        """Wait for the page of an order and return its id.

        Which requests lead to it does not matter: a second click aborts the navigation of the first one.
        """
        await expect(self.page).to_have_url(re.compile("/orders/."))
        return urlsplit(self.page.url).path.rpartition("/")[2]

    def _record_message(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"} and not message.text.startswith(_FAILED_RESPONSE):
            self.problems.append(f"{self.page.url}: {message.text}")

    def _record_request(self, request: Request) -> None:
        if not request.url.startswith((self._origin, "data:")):
            self.problems.append(f"{self.page.url}: requests {request.url}")

    def _record_failure(self, request: Request) -> None:
        if request.failure != _ABORTED:  # the visitor has left the page
            self.problems.append(f"{request.url}: {request.failure}")

    def _record_response(self, response: Response) -> None:
        if response.status >= HTTPStatus.BAD_REQUEST and not response.request.is_navigation_request():
            self.problems.append(f"{response.url}: status {response.status}")


@asynccontextmanager
async def open_tab(browser: Browser, origin: str, **options: object) -> AsyncIterator[Tab]:
    """Open a tab in a new context; `options` are those of `Browser.new_context`."""
    context = await browser.new_context(base_url=origin, locale="en-GB", **options)  # type: ignore[arg-type]
    context.set_default_timeout(_PATIENCE_MILLISECONDS)
    try:
        yield Tab(context, await context.new_page(), origin)
    finally:
        await context.close()


async def overflow(page: Page) -> int:
    """Return by how many pixels a page is wider than its window."""
    pixels: int = await page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
    return pixels


async def accessibility_violations(page: Page, *rules: str) -> list[str]:
    """Return the elements that violate a rule of axe, each with the rule; by default all rules are checked."""
    options: dict[str, object] = {"resultTypes": ["violations"]}  # describing what is right takes axe longest
    if rules:
        options["runOnly"] = {"type": "rule", "values": rules}
    results = (await Axe().run(page, options=options)).response["violations"]
    return [
        f"{violation['id']}: {node['target']}: {node['html']}" for violation in results for node in violation["nodes"]
    ]


async def save_picture(page: Page, appearance: str, name: str) -> None:
    """Save what a page looks like in the folder that the variable SCREENSHOTS names, if it is set."""
    if folder := os.environ.get("SCREENSHOTS"):
        await page.screenshot(path=Path(folder, appearance, f"{name}.png"), full_page=True)


async def faults_of_appearance(page: Page, name: str) -> list[str]:
    """Save pictures of a page, light and dark and on a phone; return what violates a rule or is wider than the window.

    Colours alone depend on the scheme, and the layout on the window.
    """
    found = await accessibility_violations(page)
    await save_picture(page, "light", name)
    await page.emulate_media(color_scheme="dark")
    found += await accessibility_violations(page, "color-contrast")
    await save_picture(page, "dark", name)
    await page.emulate_media(color_scheme="light")
    for appearance, window in (("phone", PHONE), ("desk", DESK)):
        await page.set_viewport_size(window)
        if (pixels := await overflow(page)) > 0:
            found.append(f"wider than a {appearance} by {pixels} pixels")
        if window is PHONE:
            await save_picture(page, appearance, name)
    return [f"{name}: {fault}" for fault in found]


ADDRESS = {
    "E-mail": "ada@example.com",
    "Street and house number": "1 Harbour Street",
    "Postal code": "20095",
    "City": "Hamburg",
    "State or province": "Hamburg",
    "Country": "Germany",
}
"""Texts for the checkout form by the fields' labels, which it asks for first."""


def card_fields(card: str) -> dict[str, str]:
    """Return texts for the fields that the checkout form has once it shows the total."""
    return {"Card number": card, "Month": "12", "Year": "2099", "Security code": "123"}
