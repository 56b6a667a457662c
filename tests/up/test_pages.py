"""Every page of the storefront as a visitor sees it: in light and dark, on a desk and on a phone.

Each page is opened once; the tests examine what was found.
"""

from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from shop_kit.browser import DESK, PHONE, Tab, faults_of_appearance, open_tab
from shop_kit.card_leaks import random_card

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
async def faults(customer: Customer, browser: Browser, origin: str) -> list[tuple[str, str]]:
    async with open_tab(browser, origin, storage_state=customer.state, viewport=DESK) as tab:
        # Each page is measured as on a first visit. A context for each would take the browser longer than the rest.
        session = await tab.context.new_cdp_session(tab.page)
        await session.send("Network.setCacheDisabled", {"cacheDisabled": True})
        return [fault for name, path in customer.pages().items() for fault in await examine(tab, name, path)]


async def examine(tab: Tab, name: str, path: str) -> list[tuple[str, str]]:
    """Open a page and return what is wrong with it, each fault with its kind."""
    page, earlier = tab.page, len(tab.problems)
    await load(tab, name, path)
    shifts = await page.evaluate(SHIFTS)
    found = [("layout", f"{name}: {shifts}")] if sum(value for value, _ in shifts) > MAX_SHIFT else []
    for summary in await page.locator("summary").all():
        await summary.click()
    # Pictures below the window are loaded when a visitor scrolls to them.
    await page.evaluate(LOAD_PICTURES)
    for window in (PHONE, DESK):
        await page.set_viewport_size(window)
        if (crowded := await page.evaluate(CROWDED)) > 0:
            found.append(("header", f"{name}: links of the header cover their neighbour by {crowded} pixels"))
    found += [("appearance", fault) for fault in await faults_of_appearance(page, name)]
    return found + [("problem", problem) for problem in tab.problems[earlier:]]


async def load(tab: Tab, name: str, path: str) -> None:
    """Open a page, and send the forms that lead to the one of this name."""
    await tab.page.goto(path)
    if name == "order":  # wait for its trace, which has sections of its own
        await expect(tab.page.locator(".waterfall")).to_contain_text("payment")
    if name.endswith("with-total"):
        await tab.fill_checkout_form(random_card("4"))
    if name.endswith("refused-checkout"):
        await tab.fill_checkout_form(random_card("4"))
        await tab.page.get_by_label("Month").fill("13")
        await tab.page.get_by_role("button", name="Place order").click()
        await expect(tab.page.get_by_role("alert")).to_be_visible()


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("appearance", id="violates-an-accessibility-rule-or-is-wider-than-its-window"),
        pytest.param("header", id="has-no-room-for-a-thousand-items-in-its-header"),
        pytest.param("layout", id="shifts-its-layout"),
        pytest.param("problem", id="has-errors-or-requests-other-origins"),
    ],
)
def test_no_page(faults: list[tuple[str, str]], kind: str) -> None:
    assert [fault for found, fault in faults if found == kind] == []
