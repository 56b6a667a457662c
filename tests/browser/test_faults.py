"""What a customer sees while a service is down, and when it is killed in the middle of an order."""

import pytest
from playwright.async_api import expect

from shop_internal.failpoints_pb2 import Failpoint, SetFailpointRequest
from shop_internal.failpoints_pb2_grpc import FailpointsStub
from shop_kit.browser import Tab, card_fields
from shop_kit.card_leaks import random_card
from shop_kit.running_shop import RunningShop


@pytest.mark.parametrize(
    ("failpoint", "end", "charges"),
    [("payment.charge.after", "Complete", ["CHARGED"]), ("payment.charge.before", "Not placed", [])],
)
async def test_an_order_ends_while_the_customer_watches_although_payment_was_killed(
    shop: RunningShop, tab: Tab, failpoint: str, end: str, charges: list[str]
) -> None:
    payment = shop.processes["payment"]
    await tab.prepare_order()
    kill = Failpoint(id="1", specification=f"{failpoint}=kill", seconds_to_live=600)
    await FailpointsStub(shop.internal_channels["payment"]).SetFailpoint(SetFailpointRequest(failpoint=kill))
    order_id = await tab.place_order()
    await expect(tab.page.get_by_role("heading", name="In progress")).to_be_visible()
    await payment.wait()
    await payment.start()
    await expect(tab.page.get_by_role("heading", name=end)).to_be_visible()
    assert [charge.state for charge in shop.charges(order_id)] == charges


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


async def test_a_form_that_checkout_did_not_answer_can_be_sent_again(shop: RunningShop, tab: Tab) -> None:
    card, checkout = random_card("4"), shop.processes["checkout"]
    await tab.prepare_order(card)
    await checkout.stop()
    try:
        await tab.page.get_by_role("button", name="Place order").click()
        await expect(tab.page.get_by_role("alert")).to_contain_text("it is the same order")
    finally:
        await checkout.restart()
    order_id = await send_until_accepted(tab, card)
    assert [charge.state for charge in shop.charges(order_id)] == ["CHARGED"]


async def send_until_accepted(tab: Tab, card: str) -> str:
    """Send the form again, as it proposes, until the storefront has a connection; return the order's id."""
    while await tab.page.get_by_role("alert").is_visible():
        await tab.fill_in(card_fields(card))
        async with tab.page.expect_navigation():
            await tab.page.get_by_role("button", name="Place order").click()
    return await tab.order_id()
