"""End-to-end order tests: what the customer gets and what the ledgers record."""

from dataclasses import dataclass
from email import message_from_string
from email.message import EmailMessage
from email.policy import default

import pytest_asyncio

from chassis.values.money import Money
from shop.cart_pb2 import GetCartRequest
from shop.cart_pb2_grpc import CartServiceStub
from shop.checkout_pb2 import PlaceOrderRequest
from shop.currency_pb2 import CurrencyConversionRequest
from shop.currency_pb2_grpc import CurrencyServiceStub
from shop.money_pb2 import Money as WireMoney
from shop.order_pb2 import OrderResult
from shop_internal.mail_records_pb2 import FindMailsRequest, GetMailRequest
from shop_internal.mail_records_pb2_grpc import MailRecordsStub
from shop_kit.running_shop import RunningShop, order_request
from shop_kit.waiting import wait_until


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


async def mail_of(shop: RunningShop, order: OrderResult) -> EmailMessage:
    """Wait for the order's confirmation, which may be sent shortly after the response."""
    records = MailRecordsStub(shop.internal_channels["email"])

    async def accepted() -> bool:
        return bool((await records.FindMails(FindMailsRequest(order_ids=[order.order_id]))).mails)

    await wait_until(accepted)
    found = await records.GetMail(GetMailRequest(order_id=order.order_id))
    return message_from_string(found.message, policy=default)


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


async def test_an_order_empties_the_cart(shop: RunningShop, placed: Placed) -> None:
    stub = CartServiceStub(shop.channels["cart"])

    async def is_empty() -> bool:
        return not (await stub.GetCart(GetCartRequest(user_id=placed.request.user_id))).items

    assert await wait_until(is_empty)


async def test_an_order_is_confirmed_by_one_mail_to_the_customer(shop: RunningShop, placed: Placed) -> None:
    mail = await mail_of(shop, placed.order)
    body = mail.get_body(("plain",))
    assert mail["To"] == placed.request.email
    assert body
    assert placed.order.shipping_tracking_id in body.get_content()


async def test_the_card_is_charged_the_total_of_the_order(shop: RunningShop, placed: Placed) -> None:
    charges = [(charge.state, charge.amount) for charge in shop.charges(placed.order.order_id)]
    assert charges == [("CHARGED", total(placed.order))]
