"""What a customer sees while a service is frozen, and when it is killed in the middle of an order."""

import pytest
from playwright.async_api import expect

from shop_internal.failpoints_pb2 import Failpoint, SetFailpointRequest
from shop_internal.failpoints_pb2_grpc import FailpointsStub
from shop_kit.browser import Tab
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
