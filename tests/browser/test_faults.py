"""What a customer sees while a service is frozen."""

from playwright.async_api import expect

from shop_kit.browser import Tab
from shop_kit.running_shop import RunningShop


async def test_the_journal_of_an_order_moves_without_a_reload(shop: RunningShop, tab: Tab) -> None:
    await tab.prepare_order()
    shop.processes["email"].pause()
    try:
        await tab.place_order()
        await expect(tab.page.get_by_role("heading", name="On its way")).to_be_visible()
        await tab.page.evaluate("window.loadedOnce = true")
    finally:
        shop.processes["email"].resume()
    await expect(tab.page.get_by_role("heading", name="Complete")).to_be_visible()
    assert await tab.page.evaluate("window.loadedOnce")
