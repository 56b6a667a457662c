"""What a customer sees while a service is down, and when it is killed in the middle of an order."""

import asyncio

from playwright.async_api import expect

from shop_kit.browser import Tab
from shop_kit.card_leaks import random_card
from shop_kit.running_shop import RunningShop, down

SOON = 60_000
"""Milliseconds in which everything recovers, on a busy machine too."""

RECONNECTED_SECONDS = 1.5
"""A channel waits up to 1.2 s after a connection was refused, and an order is tried for 0.7 s."""


async def test_an_order_ends_while_the_customer_watches_although_payment_was_killed(
    shop: RunningShop, tab: Tab
) -> None:
    order_id = await order_while_payment_dies(shop, tab, "payment.charge.after")
    await expect(tab.page.get_by_role("heading", name="Complete")).to_be_visible(timeout=SOON)
    assert charges_of(shop, order_id) == ["CHARGED"]


async def test_an_order_is_not_placed_when_payment_was_killed_before_it_charged(shop: RunningShop, tab: Tab) -> None:
    order_id = await order_while_payment_dies(shop, tab, "payment.charge.before")
    await expect(tab.page.get_by_role("heading", name="Not placed")).to_be_visible(timeout=SOON)
    assert charges_of(shop, order_id) == []


async def order_while_payment_dies(shop: RunningShop, tab: Tab, failpoint: str) -> str:
    """Order with a payment that is killed at a failpoint, and start it again once the order's page is open."""
    payment = shop.processes["payment"]
    await tab.prepare_order()
    await payment.stop()
    await payment.start(FAILPOINTS=f"{failpoint}=kill")
    await payment.wait_until_serving()
    await asyncio.sleep(RECONNECTED_SECONDS)  # otherwise no charge may reach the failpoint
    order_id = await tab.place_order()
    await expect(tab.page.get_by_role("heading", name="In progress")).to_be_visible()
    await payment.wait()
    await payment.start()
    return order_id


def charges_of(shop: RunningShop, order_id: str) -> list[str]:
    """Return the states of an order's charges in payment's ledger."""
    return [charge.state for charge in shop.charges(order_id)]


async def test_the_journal_of_an_order_moves_without_a_reload(shop: RunningShop, tab: Tab) -> None:
    await tab.prepare_order()
    shop.processes["email"].pause()
    try:
        await tab.place_order()
        await expect(tab.page.get_by_role("heading", name="On its way")).to_be_visible(timeout=SOON)
        await tab.page.evaluate("window.loadedOnce = true")
    finally:
        shop.processes["email"].resume()
    await expect(tab.page.get_by_role("heading", name="Complete")).to_be_visible(timeout=SOON)
    assert await tab.page.evaluate("window.loadedOnce")


async def test_a_form_that_checkout_did_not_answer_can_be_sent_again(shop: RunningShop, tab: Tab) -> None:
    card = random_card("4")
    await tab.prepare_order(card)
    async with down(shop.processes["checkout"]):
        await tab.page.get_by_role("button", name="Place order").click()
        await expect(tab.page.get_by_role("alert")).to_contain_text("it is the same order")
    order_id = await send_until_accepted(tab, card)
    assert charges_of(shop, order_id) == ["CHARGED"]


async def send_until_accepted(tab: Tab, card: str) -> str:
    """Send the form again, as it proposes, until the storefront has a connection; return the order's id."""
    async with asyncio.timeout(SOON / 1000):
        while await tab.page.get_by_role("alert").is_visible():
            for label, text in (("Card number", card), ("Month", "12"), ("Year", "2099"), ("Security code", "123")):
                await tab.page.get_by_label(label).fill(text)
            await tab.page.get_by_role("button", name="Place order").click()
    return await tab.order_id()
