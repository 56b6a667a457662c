"""End-to-end order tests: what the customer gets and what the ledgers record."""

from email import message_from_string
from email.policy import default

import pytest_asyncio

from chassis.rpc.wire import money_from_wire, money_to_wire
from chassis.values.money import Money, round_to_minor_unit, total
from shop.currency_pb2 import CurrencyConversionRequest
from shop.currency_pb2_grpc import CurrencyServiceStub
from shop.order_pb2 import OrderResult
from shop_internal.mail_records_pb2 import GetMailRequest
from shop_internal.mail_records_pb2_grpc import MailRecordsStub
from shop_kit.running_shop import RunningShop, order_request

REQUEST = order_request()


async def in_euros(shop: RunningShop, price: Money) -> Money:
    """Convert an amount and round it to cents."""
    request = CurrencyConversionRequest(to_code="EUR")
    getattr(request, "from").CopyFrom(money_to_wire(price))
    converted = await CurrencyServiceStub(shop.channels["currency"]).Convert(request)
    return round_to_minor_unit(money_from_wire(converted))


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def order(shop: RunningShop) -> OrderResult:
    return await shop.order(REQUEST)


async def test_an_order_has_the_lines_of_the_cart_at_their_prices_in_the_users_currency(
    shop: RunningShop, order: OrderResult
) -> None:
    lines = {line.item.product_id: (line.item.quantity, money_from_wire(line.cost)) for line in order.items}
    products = (await shop.products())[:3]
    assert lines == {
        product.id: (number, await in_euros(shop, money_from_wire(product.price_usd) * number))
        for number, product in enumerate(products, start=1)
    }
    assert order.shipping_cost.currency_code == "EUR"
    assert money_from_wire(order.shipping_cost).total_nanos > 0


async def test_an_order_is_charged_its_total_and_confirmed_by_a_mail(shop: RunningShop, order: OrderResult) -> None:
    await shop.wait_until_done(order.order_id)
    costs = [money_from_wire(cost) for cost in (order.shipping_cost, *(line.cost for line in order.items))]
    charges = [(charge.state, charge.amount) for charge in shop.charges(order.order_id)]
    assert charges == [("CHARGED", total("EUR", costs))]
    records = MailRecordsStub(shop.internal_channels["email"])
    sent = await records.GetMail(GetMailRequest(order_id=order.order_id))
    mail = message_from_string(sent.message, policy=default)
    body = mail.get_body(("plain",))
    assert mail["To"] == REQUEST.email
    assert body
    assert order.shipping_tracking_id in body.get_content()
