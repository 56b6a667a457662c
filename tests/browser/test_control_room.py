"""`shop up` in a browser: its control room, and the traces that its storefront shows."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from shop_cli.local.run_file import Run
from shop_kit.browser import APPEARANCES, SCREENSHOTS, Tab, accessibility_violations, open_tab, overflow
from shop_kit.charges import read_charges
from shop_kit.running_shop import shop_up

SOON = 60_000


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


@pytest_asyncio.fixture(loop_scope="session", params=APPEARANCES)
async def room(request: pytest.FixtureRequest, browser: Browser, run: Run) -> AsyncIterator[Tab]:
    """The control room, once it shows the calls of an order."""
    async with open_tab(browser, run.control_room, **APPEARANCES[request.param]) as tab:
        await tab.page.goto(f"/?token={run.token}")
        await expect(tab.page.get_by_role("row", name="checkout → payment")).to_be_visible(timeout=SOON)
        yield tab
    assert tab.problems == []


async def test_the_page_of_an_order_shows_its_trace(customer: Tab) -> None:
    await customer.place_order()
    await customer.page.get_by_text("Every step").click()
    await expect(customer.page.locator(".waterfall")).to_contain_text("payment", timeout=SOON)
    await customer.page.screenshot(path=SCREENSHOTS / "light" / "order-with-trace.png", full_page=True)
    assert await accessibility_violations(customer.page) == []


async def test_a_trace_is_not_wider_than_a_phone(customer: Tab) -> None:
    await customer.page.set_viewport_size(APPEARANCES["phone"]["viewport"])
    await customer.place_order()
    await customer.page.get_by_text("Every step").click()
    await expect(customer.page.locator(".waterfall")).to_be_visible(timeout=SOON)
    await customer.page.screenshot(path=SCREENSHOTS / "phone" / "order-with-trace.png", full_page=True)
    assert await overflow(customer.page) <= 0


@pytest.mark.parametrize("room", ["light"], indirect=True)
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


async def test_no_page_of_the_control_room_violates_an_accessibility_rule_or_is_wider_than_its_window(
    request: pytest.FixtureRequest, room: Tab
) -> None:
    trace = await room.page.get_by_role("link", name="storefront POST /orders").first.get_attribute("href")
    found = []
    for name, path in {"control-room": "/", "trace": trace, "log": "/logs/checkout", "gone": "/traces/gone"}.items():
        await room.page.goto(str(path))
        found += [*await accessibility_violations(room.page), *[name] * (await overflow(room.page) > 0)]
        window = request.node.callspec.params["room"]
        await room.page.screenshot(path=SCREENSHOTS / window / f"{name}.png", full_page=True)
    assert found == []


async def test_all_actions_are_in_view(room: Tab) -> None:
    # In one script: the page replaces its sections each second.
    boxes, width = await room.page.evaluate("""() => {
        document.querySelector(".services .state").innerText = "not ready: its database does not answer"
        const buttons = [...document.querySelectorAll(".actions button")]
        return [buttons.map(button => button.getBoundingClientRect().toJSON()), window.innerWidth]
    }""")
    assert boxes
    assert [box for box in boxes if box["left"] < 0 or box["right"] > width] == []


async def test_traces_are_sorted_by_a_column_without_scripts(browser: Browser, run: Run) -> None:
    async with open_tab(browser, run.control_room, java_script_enabled=False) as tab:
        await tab.page.goto(f"/?token={run.token}")
        await tab.page.get_by_role("link", name="Duration").click()
        shown = await tab.page.locator("#traces ~ section td:nth-child(3)").all_inner_texts()
    durations = [float(text.removesuffix(" ms")) for text in shown]
    assert durations == sorted(durations, reverse=True)
    assert len(durations) > 1
