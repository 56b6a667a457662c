"""`shop up` in a browser: its control room, and the traces that its storefront shows."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from shop_cli.local.run_file import Run
from shop_lab.world.browser import SCREENSHOTS, Tab, accessibility_violations, open_tab, overflow
from shop_lab.world.ledgers import read_charges
from shop_lab.world.running_shop import shop_up

SOON = 60_000
WINDOWS = {"desk": 1280, "phone": 360}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def run(
    browser: Browser,  # noqa: ARG001 - without one no test needs a shop
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Run]:
    async with shop_up(tmp_path_factory.mktemp("shop")) as found:
        yield found


@pytest_asyncio.fixture(loop_scope="session")
async def customer(browser: Browser, run: Run) -> AsyncIterator[Tab]:
    """A visitor whose checkout form is filled in."""
    async with open_tab(browser, f"http://{run.addresses['storefront']}") as tab:
        await tab.prepare_order()
        yield tab
    assert tab.problems == []


@pytest_asyncio.fixture(loop_scope="session", params=WINDOWS)
async def room(request: pytest.FixtureRequest, browser: Browser, run: Run) -> AsyncIterator[Tab]:
    """The control room."""
    viewport = {"width": WINDOWS[request.param], "height": 900}
    async with open_tab(browser, run.control_room, viewport=viewport) as tab:
        await tab.page.goto(f"/?token={run.token}")
        yield tab
        await tab.page.screenshot(path=SCREENSHOTS / request.param / "control-room.png", full_page=True)
    assert tab.problems == []


async def test_the_page_of_an_order_shows_its_trace(customer: Tab) -> None:
    await customer.place_order()
    await expect(customer.page.locator(".waterfall")).to_contain_text("payment", timeout=SOON)
    await customer.page.screenshot(path=SCREENSHOTS / "light" / "order-with-trace.png", full_page=True)
    assert await accessibility_violations(customer.page) == []


async def test_a_trace_is_not_wider_than_a_phone(customer: Tab) -> None:
    await customer.page.set_viewport_size({"width": WINDOWS["phone"], "height": 740})
    await customer.place_order()
    await expect(customer.page.locator(".waterfall")).to_be_visible(timeout=SOON)
    await customer.page.screenshot(path=SCREENSHOTS / "phone" / "order-with-trace.png", full_page=True)
    assert await overflow(customer.page) <= 0


@pytest.mark.parametrize("room", ["desk"], indirect=True)
async def test_an_order_is_charged_if_it_is_placed_although_payment_was_frozen(
    room: Tab, customer: Tab, run: Run
) -> None:
    await room.page.get_by_role("button", name="freeze payment", exact=True).click()
    resume = room.page.get_by_role("button", name="resume payment", exact=True)
    await expect(resume).to_be_visible(timeout=SOON)
    await customer.page.get_by_role("button", name="Place order").click(no_wait_after=True)
    await resume.click()
    order_id = await customer.order_id()
    end = customer.page.get_by_role("heading", name=re.compile("Complete|Not placed"))
    await expect(end).to_be_visible(timeout=SOON)
    placed = await end.inner_text() == "Complete"
    charges = read_charges(f"sqlite:///{Path(run.folder)}/.shop/payment.db")
    assert [charge.state for charge in charges if charge.key.startswith(order_id)] == (["CHARGED"] if placed else [])


async def test_the_control_room_violates_no_accessibility_rule(room: Tab) -> None:
    assert await accessibility_violations(room.page) == []


async def test_the_control_room_is_not_wider_than_its_window(room: Tab) -> None:
    assert await overflow(room.page) <= 0
