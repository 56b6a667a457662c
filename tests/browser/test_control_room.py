"""`shop up` in a browser: its control room, and the traces that its storefront shows."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, ViewportSize, expect

from shop_cli.local.run_file import Run
from shop_kit.browser import DESK, PHONE, Tab, faults_of_appearance, open_tab
from shop_kit.charges import read_charges
from shop_kit.running_shop import shop_up


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def run(
    browser: Browser,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Run]:
    async with shop_up(tmp_path_factory.mktemp("shop")) as found:
        async with open_tab(browser, f"http://{found.addresses['storefront']}") as tab:
            await tab.prepare_order()
            await tab.place_order()
        yield found


@pytest_asyncio.fixture(loop_scope="session")
async def customer(browser: Browser, run: Run) -> AsyncIterator[Tab]:
    """A visitor whose checkout form is filled in."""
    async with open_tab(browser, f"http://{run.addresses['storefront']}") as tab:
        await tab.prepare_order()
        yield tab
    assert tab.problems == []


@pytest_asyncio.fixture(loop_scope="session")
async def room(browser: Browser, run: Run) -> AsyncIterator[Tab]:
    """The control room, once it shows the calls of an order."""
    async with open_tab(browser, run.control_room, viewport=DESK) as tab:
        await tab.page.goto(f"/?token={run.token}")
        await expect(tab.page.get_by_role("row", name="checkout → payment")).to_be_visible()
        yield tab
    assert tab.problems == []


async def test_the_page_of_an_order_shows_its_trace(customer: Tab) -> None:
    await customer.place_order()
    await customer.page.get_by_text("Every step").click()
    await expect(customer.page.locator(".waterfall")).to_contain_text("payment")
    assert await faults_of_appearance(customer.page, "order-with-trace") == []


async def test_an_order_placed_while_payment_was_frozen_is_charged(room: Tab, customer: Tab, run: Run) -> None:
    await room.page.get_by_role("button", name="freeze payment", exact=True).click()
    resume = room.page.get_by_role("button", name="resume payment", exact=True)
    await expect(resume).to_be_visible()
    await customer.page.get_by_role("button", name="Place order").click(no_wait_after=True)
    await resume.click()
    order_id = await customer.order_id()
    end = customer.page.get_by_role("heading", name=re.compile("Complete|Not placed"))
    await expect(end).to_be_visible()
    placed = await end.inner_text() == "Complete"
    charges = read_charges(f"sqlite:///{Path(run.folder)}/.shop/payment.db")
    assert [charge.state for charge in charges if charge.key.startswith(order_id)] == (["CHARGED"] if placed else [])


async def test_no_page_violates_an_accessibility_rule_or_is_too_wide(room: Tab) -> None:
    trace = await room.page.get_by_role("link", name="storefront POST /orders").first.get_attribute("href")
    found = []
    for name, path in {"control-room": "/", "trace": trace, "log": "/logs/checkout", "gone": "/traces/gone"}.items():
        await room.page.goto(str(path))
        found += await faults_of_appearance(room.page, name)
    assert found == []


@pytest.mark.parametrize("window", [DESK, PHONE], ids=["desk", "phone"])
async def test_all_actions_are_in_view(room: Tab, window: ViewportSize) -> None:
    await room.page.set_viewport_size(window)
    # In one script: the page replaces its sections each second.
    boxes, width = await room.page.evaluate("""() => {
        document.querySelector(".services .state").innerText = "not ready: its database does not answer"
        const buttons = [...document.querySelectorAll(".actions button")]
        return [buttons.map(button => button.getBoundingClientRect().toJSON()), window.innerWidth]
    }""")
    assert boxes
    assert [box for box in boxes if box["left"] < 0 or box["right"] > width] == []
