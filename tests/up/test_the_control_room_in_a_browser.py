"""The control room in a browser. These tests are the last of the folder: they break the shop and start customers."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, ViewportSize, expect

from shop_cli.local.run_file import Run
from shop_kit.browser import DESK, PHONE, Tab, faults_of_appearance, open_tab


@pytest_asyncio.fixture(scope="module", loop_scope="session", autouse=True)
async def _order(browser: Browser, origin: str) -> None:
    async with open_tab(browser, origin) as tab:
        await tab.prepare_order()
        await tab.place_order()


@pytest_asyncio.fixture(loop_scope="session")
async def room(browser: Browser, run: Run) -> AsyncIterator[Tab]:
    """The control room, once it shows the calls of an order."""
    async with open_tab(browser, run.control_room, viewport=DESK) as tab:
        await tab.page.goto(f"/?token={run.token}")
        await expect(tab.page.get_by_role("row", name="checkout → payment")).to_be_visible()
        yield tab
    assert tab.problems == []


async def test_a_service_is_frozen_and_resumed(room: Tab) -> None:
    for action, opposite in (("freeze payment", "resume payment"), ("resume payment", "freeze payment")):
        await room.page.get_by_role("button", name=action, exact=True).click()
        await expect(room.page.get_by_role("button", name=opposite, exact=True)).to_have_text(opposite.split()[0])


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
    # In one script: the page patches its sections each second.
    boxes, width = await room.page.evaluate("""() => {
        document.querySelector(".services .state").innerText = "not ready: its database does not answer"
        const buttons = [...document.querySelectorAll(".actions button")]
        return [buttons.map(button => button.getBoundingClientRect().toJSON()), window.innerWidth]
    }""")
    assert boxes
    assert [box for box in boxes if box["left"] < 0 or box["right"] > width] == []


@pytest.mark.parametrize("clicks", [30, pytest.param(200, marks=pytest.mark.long)])
async def test_a_busy_page_loses_no_click_selection_focus_or_answer(room: Tab, clicks: int) -> None:
    page = room.page
    await page.get_by_label("Sessions a second").press("Enter")
    await expect(page.locator("#customers .verdict")).to_have_text("2 a second")
    await page.evaluate("""() => {
        window.arrived = 0
        document.addEventListener("click", (event) => {
            if (event.target.closest("#services a, #traces tbody a")) { event.preventDefault(); window.arrived++ }
        })
    }""")
    for number in range(clicks):
        section = ("#services th", "#traces tbody td")[number % 2]
        link = page.locator(f"{section} a").nth(number // 2 % 10)
        await link.hover()
        await page.mouse.down()
        await asyncio.sleep(0.12)  # how long a finger presses
        await page.mouse.up()
    assert await page.evaluate("window.arrived") == clicks
    last = page.locator("#services tbody tr:last-child th")  # rows of traces may all be replaced at once
    selected = await last.evaluate("(cell) => (getSelection().selectAllChildren(cell), String(getSelection()))")
    await page.get_by_role("link", name="Storefront", exact=True).hover()
    await page.get_by_role("button", name="Break something").focus()
    first = await page.locator("#traces tbody tr").first.get_attribute("id")
    await expect(page.locator(f"#{first}")).not_to_be_attached()
    assert await page.evaluate("String(getSelection())") == selected != ""
    assert await page.evaluate("document.activeElement.innerText") == "Break something"
    await page.keyboard.press("Enter")
    answer = page.get_by_label("Service at fault")
    await answer.fill("shipping")
    await answer.press("Enter")
    await expect(page.locator("#mystery li")).to_contain_text("shipping, after")
    await expect(answer).to_be_focused()
