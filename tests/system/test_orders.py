"""End-to-end order tests: what the customer gets and what the ledgers record."""

import sqlite3
import uuid
from contextlib import closing
from email import message_from_string
from email.message import EmailMessage
from email.policy import default

import grpc
import pytest

from chassis.values.money import Money
from shop.cart_pb2 import GetCartRequest
from shop.cart_pb2_grpc import CartServiceStub
from shop.checkout_pb2_grpc import CheckoutServiceStub
from shop.currency_pb2 import CurrencyConversionRequest
from shop.currency_pb2_grpc import CurrencyServiceStub
from shop.money_pb2 import Money as WireMoney
from shop.order_pb2 import OrderResult
from shop_internal.mail_records_pb2 import FindMailsRequest, GetMailRequest
from shop_internal.mail_records_pb2_grpc import MailRecordsStub
from shop_kit.waiting import wait_until
from shop_lab.world.running_shop import RunningShop, order_request


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


async def test_an_order_contains_what_was_in_the_cart(shop: RunningShop) -> None:
    products = (await shop.products())[:3]
    order = await shop.order()
    bought = {line.item.product_id: line.item.quantity for line in order.items}
    assert bought == {product.id: number for number, product in enumerate(products, start=1)}


async def test_each_line_costs_its_price_times_its_quantity_in_the_users_currency(shop: RunningShop) -> None:
    products = (await shop.products())[:3]
    order = await shop.order()
    costs = {line.item.product_id: amount(line.cost) for line in order.items}
    for number, product in enumerate(products, start=1):
        assert costs[product.id] == await in_euros(shop, product.price_usd, number)


async def test_shipping_has_a_cost_in_the_users_currency(shop: RunningShop) -> None:
    cost = amount((await shop.order()).shipping_cost)
    assert cost.currency_code == "EUR"
    assert cost.total_nanos > 0


async def test_an_order_empties_the_cart(shop: RunningShop) -> None:
    request = order_request()
    await shop.order(request)
    stub = CartServiceStub(shop.channels["cart"])

    async def is_empty() -> bool:
        return not (await stub.GetCart(GetCartRequest(user_id=request.user_id))).items

    assert await wait_until(is_empty)


async def test_each_order_has_its_own_tracking_id(shop: RunningShop) -> None:
    first, second = await shop.order(), await shop.order()
    assert first.shipping_tracking_id
    assert first.shipping_tracking_id != second.shipping_tracking_id


async def test_an_order_is_confirmed_by_one_mail_to_the_customer(shop: RunningShop) -> None:
    request = order_request()
    order = await shop.order(request)
    mail = await mail_of(shop, order)
    body = mail.get_body(("plain",))
    assert mail["To"] == request.email
    assert body
    assert order.shipping_tracking_id in body.get_content()


async def test_the_card_is_charged_the_total_of_the_order(shop: RunningShop) -> None:
    order = await shop.order()
    with closing(sqlite3.connect(shop.folder / ".shop" / "payment.db")) as ledger:
        charged = ledger.execute(
            "SELECT state, currency_code, units, nanos FROM charges WHERE charge_key LIKE ?", (f"{order.order_id}%",)
        ).fetchall()
    assert charged == [("CHARGED", "EUR", total(order).units, total(order).nanos)]


async def test_repeating_a_request_with_its_key_places_one_order(shop: RunningShop) -> None:
    request, key = order_request(), (("idempotency-key", str(uuid.uuid4())),)
    await shop.fill_cart(request.user_id)
    stub = CheckoutServiceStub(shop.channels["checkout"])
    answers = [await stub.PlaceOrder(request, metadata=key) for _ in range(2)]
    assert answers[0] == answers[1]


async def test_an_empty_cart_is_refused(shop: RunningShop) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await CheckoutServiceStub(shop.channels["checkout"]).PlaceOrder(order_request())
    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
