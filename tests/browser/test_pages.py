"""Every page of the storefront as a visitor sees it: in light and dark, on a desk and on a phone.

Each page is opened once, with pictures in `.shop/screenshots`; the tests examine what was found.
"""

from dataclasses import dataclass, field
from typing import Any

import pytest_asyncio
from playwright.async_api import Browser, Response, expect

from shop_kit.browser import DESK, PHONE, Tab, faults_of_appearance, open_tab
from shop_kit.card_leaks import random_card

MAX_KILOBYTES = 60
MAX_SHIFT = 0.03
"""A third of what counts as good. Half a sentence that a busy browser paints and then completes shifts by 0.01."""
SHIFTS = """
    () => new Promise((resolve) => {
        const shifts = [];
        new PerformanceObserver((list) => {
            for (const {value, sources} of list.getEntries())
                shifts.push([value, sources.map(({node}) => (node?.outerHTML ?? node?.data)?.slice(0, 80))]);
        }).observe({type: "layout-shift", buffered: true});
        requestAnimationFrame(() => setTimeout(() => resolve(shifts)));
    })
"""

# By how many pixels the links of the header cover their neighbour, such as with very many items in the cart.
CROWDED = """
    () => {
        const edge = (selector) => document.querySelector(selector).getBoundingClientRect();
        return Math.max(0, edge(".currency").right - edge(".account a").left);
    }
"""

LOAD_PICTURES = """
    () => Promise.all([...document.images].map((image) => {
        image.loading = "eager";
        return image.decode();
    }))
"""


@dataclass
class View:
    """What was found on a page.

    Attributes:
        appearance: violations of accessibility rules, and of the width of the window.
        kilobytes: what the browser loads on a first visit, without pictures.
        shifts: the layout shifts while the page was loaded, each with the elements that moved.
        crowded: by how many pixels links of the header cover their neighbour.
        problems: those of its tab.
    """

    name: str
    appearance: list[str] = field(default_factory=list)
    kilobytes: float = 0.0
    shifts: list[tuple[float, list[str]]] = field(default_factory=list)
    crowded: float = 0.0
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Customer:
    """A visitor with an order and a filled cart: the state of a browser, and the id of the order."""

    state: Any
    order_id: str

    def pages(self) -> dict[str, str]:
        """Return the path of each page by a name for its screenshot."""
        order = f"/orders/{self.order_id}"
        return {
            "home": "/",
            "products": "/search",
            "search": "/search?q=kettle",
            "nothing-found": "/search?q=zeppelin",
            "category": "/categories/kitchen",
            "product": "/products/copper-kettle",
            "cart": "/cart?added=linen-shirt",
            "checkout": "/checkout",
            "checkout-with-total": "/checkout",
            "refused-checkout": "/checkout",
            "orders": "/orders",
            "order": order,
            "repeated-order": f"{order}?repeated=1",
            "email": f"{order}/email",
            "not-found": "/products/zeppelin",
        }


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def customer(browser: Browser, origin: str) -> Customer:
    async with open_tab(browser, origin) as tab:
        for product_id in ("copper-kettle", "merino-beanie"):
            await tab.add_to_cart(product_id)
        await tab.fill_checkout_form(random_card("4"))
        order_id = await tab.place_order()
        await expect(tab.page.get_by_role("heading", name="Complete")).to_be_visible()
        for product_id, quantity in (("linen-shirt", 1), ("stoneware-mug", 3), ("usb-c-hub", 1000)):
            await tab.add_to_cart(product_id, quantity)
        return Customer(await tab.context.storage_state(), order_id)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def views(customer: Customer, browser: Browser, origin: str) -> list[View]:
    async with open_tab(browser, origin, storage_state=customer.state, viewport=DESK) as tab:
        # Each page is measured as on a first visit. A context for each would take the browser longer than the rest.
        session = await tab.context.new_cdp_session(tab.page)
        await session.send("Network.setCacheDisabled", {"cacheDisabled": True})
        return [await examine(tab, name, path) for name, path in customer.pages().items()]


async def examine(tab: Tab, name: str, path: str) -> View:
    """Open a page, save pictures of it and return what was found."""
    page, loaded, earlier = tab.page, list[Response](), len(tab.problems)

    def record(response: Response) -> None:
        if response.request.is_navigation_request() and response.frame == page.main_frame:
            loaded.clear()  # a form has led to the next page
        loaded.append(response)

    page.on("response", record)
    await page.goto(path)
    if name.endswith("with-total"):
        await tab.fill_checkout_form(random_card("4"))
    if name.endswith("refused-checkout"):
        await send_invalid_form(tab)
    sizes = [await response.request.sizes() for response in loaded if response.request.resource_type != "image"]
    view = View(name, kilobytes=sum(size["responseBodySize"] + size["responseHeadersSize"] for size in sizes) / 1024)
    view.shifts = await page.evaluate(SHIFTS)
    for summary in await page.locator("summary").all():
        await summary.click()
    # Pictures below the window are loaded when a visitor scrolls to them.
    await page.evaluate(LOAD_PICTURES)
    for window in (PHONE, DESK):
        await page.set_viewport_size(window)
        view.crowded = max(view.crowded, await page.evaluate(CROWDED))
    view.appearance = await faults_of_appearance(page, name)
    page.remove_listener("response", record)
    view.problems = tab.problems[earlier:]
    return view


async def send_invalid_form(tab: Tab) -> None:
    await tab.fill_checkout_form(random_card("4"))
    await tab.page.get_by_label("Month").fill("13")
    await tab.page.get_by_role("button", name="Place order").click()
    await expect(tab.page.get_by_role("alert")).to_be_visible()


def test_no_page_violates_an_accessibility_rule_or_is_wider_than_its_window(views: list[View]) -> None:
    assert [fault for view in views for fault in view.appearance] == []


def test_the_header_holds_a_thousand_items(views: list[View]) -> None:
    assert {view.name: view.crowded for view in views if view.crowded > 0} == {}


def test_no_page_exceeds_its_weight(views: list[View]) -> None:
    assert {view.name: view.kilobytes for view in views if view.kilobytes > MAX_KILOBYTES} == {}


def test_no_page_shifts_its_layout(views: list[View]) -> None:
    assert {view.name: view.shifts for view in views if sum(value for value, _ in view.shifts) > MAX_SHIFT} == {}


def test_no_page_has_errors_or_requests_other_origins(views: list[View]) -> None:
    assert [problem for view in views for problem in view.problems] == []
