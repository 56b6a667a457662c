"""End-to-end order tests: what the customer gets and what the ledgers record. Carts: test_storefront.py."""

from dataclasses import dataclass
from email import message_from_string
from email.policy import default

import pytest_asyncio

from chassis.values.money import Money
from shop.checkout_pb2 import PlaceOrderRequest
from shop.currency_pb2 import CurrencyConversionRequest
from shop.currency_pb2_grpc import CurrencyServiceStub
from shop.money_pb2 import Money as WireMoney
from shop.order_pb2 import OrderResult
from shop_internal.mail_records_pb2 import GetMailRequest
from shop_internal.mail_records_pb2_grpc import MailRecordsStub
from shop_kit.running_shop import RunningShop, order_request


@dataclass(frozen=True)
class Placed:
    """An order and its request."""

    request: PlaceOrderRequest
    order: OrderResult


def amount(wire: WireMoney) -> Money:
    return Money.of(wire.currency_code, wire.units, wire.nanos)


def total(order: OrderResult) -> Money:
    costs = [amount(line.cost).total_nanos for line in order.items]
    return Money(order.shipping_cost.currency_code, sum(costs) + amount(order.shipping_cost).total_nanos)


async def in_euros(shop: RunningShop, price: WireMoney, quantity: int) -> Money:
    """Return the cost of a line: price times quantity, converted, rounded to cents."""
    line = amount(price) * quantity
    request = CurrencyConversionRequest(to_code="EUR")
    getattr(request, "from").CopyFrom(WireMoney(currency_code=line.currency_code, units=line.units, nanos=line.nanos))
    converted = await CurrencyServiceStub(shop.channels["currency"]).Convert(request)
    return Money("EUR", round(amount(converted).total_nanos / 10_000_000) * 10_000_000)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def placed(shop: RunningShop) -> Placed:
    request = order_request()
    return Placed(request, await shop.order(request))


async def test_an_order_has_the_lines_of_the_cart_at_their_prices_in_the_users_currency(
    shop: RunningShop, placed: Placed
) -> None:
    lines = {line.item.product_id: (line.item.quantity, amount(line.cost)) for line in placed.order.items}
    products = (await shop.products())[:3]
    assert lines == {
        product.id: (number, await in_euros(shop, product.price_usd, number))
        for number, product in enumerate(products, start=1)
    }
    assert placed.order.shipping_cost.currency_code == "EUR"
    assert amount(placed.order.shipping_cost).total_nanos > 0


async def test_an_order_is_charged_its_total_and_confirmed_by_a_mail(shop: RunningShop, placed: Placed) -> None:
    order_id = placed.order.order_id
    await shop.wait_until_done(order_id)
    charges = [(charge.state, charge.amount) for charge in shop.charges(order_id)]
    assert charges == [("CHARGED", total(placed.order))]
    records = MailRecordsStub(shop.internal_channels["email"])
    mail = message_from_string((await records.GetMail(GetMailRequest(order_id=order_id))).message, policy=default)
    body = mail.get_body(("plain",))
    assert mail["To"] == placed.request.email
    assert body
    assert placed.order.shipping_tracking_id in body.get_content()
