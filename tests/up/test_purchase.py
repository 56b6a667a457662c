"""What a customer does, click by click."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from shop_cli.local.run_file import Run
from shop_kit.browser import ADDRESS, Tab, card_fields
from shop_kit.card_leaks import leaked_cards, random_card
from shop_kit.running_shop import run_shop

MAX_STOPS = 80
"""Elements that the Tab key reaches on a page, with room to spare."""


async def test_a_visitor_searches_and_orders_in_yen(tab: Tab) -> None:
    page = tab.page
    await page.goto("/")
    async with page.expect_navigation():
        await page.get_by_label("Currency").select_option("JPY")
    await page.get_by_label("Search products").fill("kettle")
    await page.get_by_role("button", name="Search").click()
    await page.get_by_role("link", name="Copper Kettle").click()
    await page.get_by_role("button", name="Add to cart").click()
    await page.get_by_role("link", name="Go to checkout").click()
    await tab.fill_checkout_form(random_card("4"))
    total = await page.locator(".summary strong").inner_text()
    assert re.fullmatch("¥[1-9][0-9,]+", total)
    await expect(page.get_by_role("button", name="Place order")).to_contain_text(total)
    await tab.place_order()
    await expect(page.locator(".totals strong")).to_have_text(total)


@pytest.mark.parametrize("month", ["12", "13"], ids=["after an order", "after a refused form"])
async def test_the_back_button_shows_no_card_data(tab: Tab, month: str) -> None:
    card = random_card("4")
    await tab.prepare_order(card)
    await tab.page.get_by_label("Month").fill(month)
    await tab.page.get_by_role("button", name="Place order").click()
    if month == "12":
        await tab.order_id()
    else:
        await expect(tab.page.get_by_role("alert")).to_be_visible()
    await tab.page.go_back()
    assert leaked_cards((await content(tab.page)).encode(), [card]) == set()


async def test_a_visitor_orders_with_the_keyboard_alone(tab: Tab) -> None:
    await tab.page.goto("/products/copper-kettle")
    await press_enter_on(tab.page, "Add to cart")
    await expect(tab.page).to_have_url(re.compile(r"/cart\?"))
    await press_enter_on(tab.page, "Go to checkout")
    await expect(tab.page).to_have_url(re.compile("/checkout$"))
    await type_into(tab.page, ADDRESS)
    async with tab.page.expect_navigation():
        await press_enter_on(tab.page, "Continue")
    await type_into(tab.page, card_fields(random_card("4")))
    await press_enter_on(tab.page, "Place order")
    assert await tab.order_id()


async def test_the_first_stop_of_the_keyboard_skips_the_header(tab: Tab) -> None:
    await tab.page.goto("/")
    await press_enter_on(tab.page, "Skip to content")
    assert await tab.page.evaluate("document.activeElement.id") == "content"


async def content(page: Page) -> str:
    """Return a page's HTML and the contents of its fields."""
    fields = await page.locator("input").evaluate_all("fields => fields.map(field => field.value).join(' ')")
    return f"{await page.content()} {fields}"


async def type_into(page: Page, texts: Mapping[str, str]) -> None:
    """Type texts into fields by their labels."""
    for label, text in texts.items():
        await tab_to(page, label)
        await page.keyboard.type(text)


async def press_enter_on(page: Page, name: str) -> None:
    await tab_to(page, name)
    await page.keyboard.press("Enter")


async def tab_to(page: Page, name: str) -> None:
    """Press Tab until the element of this name has the focus; fail if the focus is invisible or does not get there."""
    for _ in range(MAX_STOPS):
        await page.keyboard.press("Tab")
        label, outlined = await page.evaluate(
            """() => {
                const element = document.activeElement;
                const text = element.labels?.[0]?.textContent ?? element.textContent;
                return [text.trim(), getComputedStyle(element).outlineStyle !== "none"];
            }"""
        )
        assert outlined, f"the focus on {label!r} is invisible"
        if label.startswith(name):
            return
    raise AssertionError(f"the keyboard does not reach {name!r}")


async def test_the_journal_of_an_order_moves_without_a_reload(run: Run, tab: Tab) -> None:
    await tab.prepare_order()
    await run_shop("freeze", "email", folder=Path(run.folder))
    try:
        await tab.place_order()
        await expect(tab.page.get_by_role("heading", name="On its way")).to_be_visible()
        await tab.page.evaluate("window.loadedOnce = true")
    finally:
        await run_shop("resume", "email", folder=Path(run.folder))
    await expect(tab.page.get_by_role("heading", name="Complete")).to_be_visible()
    assert await tab.page.evaluate("window.loadedOnce")
