"""No card number leaves the calls that carry it: not into a log, span, metric, error, file or database."""

import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import pytest
from google.protobuf import text_format
from google.protobuf.message import Message

from shop.ad_pb2 import AdRequest
from shop.ad_pb2_grpc import AdServiceStub
from shop.cart_pb2 import AddItemRequest, CartItem, GetCartRequest
from shop.cart_pb2_grpc import CartServiceStub
from shop.checkout_pb2 import PlaceOrderRequest
from shop.checkout_pb2_grpc import CheckoutServiceStub
from shop.currency_pb2 import CurrencyConversionRequest
from shop.currency_pb2_grpc import CurrencyServiceStub
from shop.email_pb2 import SendOrderConfirmationRequest
from shop.email_pb2_grpc import EmailServiceStub
from shop.money_pb2 import Money
from shop.payment_pb2 import ChargeRequest, CreditCardInfo
from shop.payment_pb2_grpc import PaymentServiceStub
from shop.product_catalog_pb2 import GetProductRequest, SearchProductsRequest
from shop.product_catalog_pb2_grpc import ProductCatalogServiceStub
from shop.recommendation_pb2 import ListRecommendationsRequest
from shop.recommendation_pb2_grpc import RecommendationServiceStub
from shop_testkit.running_shop import RunningShop, order_request, running_shop

# Payment providers' test numbers; the last one breaks the Luhn rule, as a mistyped card does.
VISA, MASTERCARD, AMEX, MISTYPED = "4012888888881881", "5105105105105100", "378282246310005", "4012888888881882"
CARDS = (VISA, MASTERCARD, AMEX, MISTYPED)
WRITINGS = [writing for card in CARDS for writing in (card, " ".join(re.findall("....?", card)), card + " ")]
CVV = 9173

LONGEST_FRAGMENT = 8
IDS = re.compile(r'[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}|\b[0-9a-f]{32}\b|"span_id":"[0-9a-f]{16}"')
TIMES = re.compile(r"\b1[0-9]{18}\b|20[0-9]{2}-[0-9]{2}-[0-9]{2}")
NUMBERS = re.compile(r"(?<![0-9A-Za-z.])[2-6](?:[ -]?[0-9]){11,18}(?![0-9A-Za-z])")


def luhn_valid(digits: str) -> bool:
    doubled = [int(digit) * (2 if place % 2 else 1) for place, digit in enumerate(reversed(digits))]
    return sum(number - 9 if number > 9 else number for number in doubled) % 10 == 0


def cards_in(text: str) -> list[str]:
    """The test's cards, or more than eight digits of one, and whatever else looks like a card."""
    found = [card for card in CARDS if any(card[at : at + LONGEST_FRAGMENT + 1] in text for at in range(len(card) - 8))]
    joined = re.sub(r"(?<=[0-9])[ -](?=[0-9])", "", text)
    found += [card for card in CARDS if card in joined]
    without_ids = TIMES.sub("", IDS.sub("", text))
    digits = [re.sub("[ -]", "", match.group()) for match in NUMBERS.finditer(without_ids)]
    return found + [number for number in digits if luhn_valid(number)]


@dataclass
class Answers:
    """What callers were told."""

    texts: list[str] = field(default_factory=list)

    async def keep(self, call: grpc.aio.UnaryUnaryCall[Message, Message]) -> None:
        """Await a call; keep its answer or everything about its refusal."""
        try:
            self.texts.append(text_format.MessageToString(await call))
        except grpc.aio.AioRpcError as error:
            self.texts.append(f"{error.code()} {error.details()} {error.debug_error_string()}")
        self.texts += [str(pair) for pair in await call.trailing_metadata() or ()]


def order_with(number: str, **changes: str) -> PlaceOrderRequest:
    request = order_request()
    request.credit_card.credit_card_number = number
    request.credit_card.credit_card_cvv = CVV
    request.MergeFrom(PlaceOrderRequest(**changes))
    return request


async def order_in_every_way(shop: RunningShop, answers: Answers) -> None:
    checkout = CheckoutServiceStub(shop.channels["checkout"])
    for number in WRITINGS:
        request = order_with(number)
        await shop.fill_cart(request.user_id)
        await answers.keep(checkout.PlaceOrder(request))
    for changes in ({"user_currency": VISA}, {"email": VISA}, {"email": f"{VISA}@"}):
        await answers.keep(checkout.PlaceOrder(order_with(VISA, **changes)))
    expired = order_with(VISA)
    expired.credit_card.credit_card_expiration_year = 2001
    await shop.fill_cart(expired.user_id)
    await answers.keep(checkout.PlaceOrder(expired))
    await answers.keep(checkout.PlaceOrder(order_with(VISA), metadata=(("x-card", VISA),)))


async def charge_in_every_way(shop: RunningShop, answers: Answers) -> None:
    payment = PaymentServiceStub(shop.channels["payment"])
    for number in WRITINGS:
        card = CreditCardInfo(
            credit_card_number=number,
            credit_card_cvv=CVV,
            credit_card_expiration_year=2040,
            credit_card_expiration_month=1,
        )
        for amount in (Money(currency_code="EUR", units=5), Money(currency_code=number, units=5), Money()):
            await answers.keep(payment.Charge(ChargeRequest(amount=amount, credit_card=card)))


async def put_a_card_into_every_text(shop: RunningShop, answers: Answers) -> None:
    """Where it is not what the caller asks to be stored."""
    cart = CartServiceStub(shop.channels["cart"])
    await answers.keep(cart.AddItem(AddItemRequest(user_id=VISA, item=CartItem(product_id="p", quantity=0))))
    await answers.keep(cart.AddItem(AddItemRequest(user_id="u", item=CartItem(product_id=VISA * 9, quantity=1))))
    await answers.keep(cart.GetCart(GetCartRequest(user_id=VISA * 9)))
    catalog = ProductCatalogServiceStub(shop.channels["product-catalog"])
    await answers.keep(catalog.GetProduct(GetProductRequest(id=VISA)))
    await answers.keep(catalog.SearchProducts(SearchProductsRequest(query=VISA)))
    await answers.keep(AdServiceStub(shop.channels["ad"]).GetAds(AdRequest(context_keys=[VISA])))
    recommendation = RecommendationServiceStub(shop.channels["recommendation"])
    await answers.keep(recommendation.ListRecommendations(ListRecommendationsRequest(user_id=VISA, product_ids=[VISA])))
    currency = CurrencyServiceStub(shop.channels["currency"])
    conversion = CurrencyConversionRequest(to_code=VISA)
    getattr(conversion, "from").currency_code = VISA
    await answers.keep(currency.Convert(conversion))
    mail = EmailServiceStub(shop.channels["email"])
    await answers.keep(mail.SendOrderConfirmation(SendOrderConfirmationRequest(email=VISA)))


async def send_broken_bytes(shop: RunningShop, answers: Answers) -> None:
    raw = order_with(VISA).SerializeToString()
    for channel, method in (("checkout", "shop.CheckoutService/PlaceOrder"), ("payment", "shop.PaymentService/Charge")):
        for broken in (raw[:-3], raw + b"\xff", b"\x0a\x12\xff" + VISA.encode()):
            call = shop.channels[channel].unary_unary(f"/{method}")(broken)
            try:
                await call
            except grpc.aio.AioRpcError as error:
                answers.texts.append(f"{error.code()} {error.details()} {error.trailing_metadata()}")


async def order_while_payment_fails(shop: RunningShop, answers: Answers) -> None:
    """With a bug in payment, and without payment."""
    checkout = CheckoutServiceStub(shop.channels["checkout"])
    await shop.processes["payment"].restart(FAILPOINTS="payment.charge.before=error")
    for number in (VISA, MISTYPED):
        request = order_with(number)
        await shop.fill_cart(request.user_id)
        await answers.keep(checkout.PlaceOrder(request, timeout=2))
    shop.processes["payment"].kill()
    await shop.processes["payment"].wait()
    await answers.keep(checkout.PlaceOrder(request, timeout=2))


def written(folder: Path) -> Iterator[tuple[str, str]]:
    """Every file, its bytes read as text."""
    for path in folder.rglob("*"):
        if path.is_file():
            yield str(path.relative_to(folder)), path.read_bytes().decode("latin-1")


def texts_of(message: Message) -> Iterator[str]:
    """All texts of a message, not its binary ids and its numbers."""
    for descriptor, value in message.ListFields():
        for each in value if descriptor.is_repeated else [value]:
            if isinstance(each, Message):
                yield from texts_of(each)
            elif isinstance(each, str):
                yield each


async def test_no_card_number_is_found_in_anything_the_shop_writes_or_says(tmp_path: Path) -> None:
    answers = Answers()
    async with running_shop(tmp_path, LOG_LEVEL="debug") as shop:
        await order_in_every_way(shop, answers)
        await charge_in_every_way(shop, answers)
        await put_a_card_into_every_text(shop, answers)
        await send_broken_bytes(shop, answers)
        await order_while_payment_fails(shop, answers)
    files = dict(written(tmp_path))
    exported = ["\n".join(texts_of(message)) for message in shop.received.messages]
    everything = {"answers": "\n".join(answers.texts), "telemetry": "\n".join(exported), **files}
    assert {place: found for place, text in everything.items() if (found := cards_in(text))} == {}
    # It would prove nothing if nothing had been written.
    assert any(name.endswith("payment.db") for name in files)
    assert any(name.endswith(".eml") for name in files)
    assert "1881" in "".join(text for name, text in files.items() if "payment.db" in name)
    assert shop.received.spans
    assert len(answers.texts) > len(WRITINGS)


@pytest.mark.parametrize(
    "text",
    [
        f"charged {VISA}",
        '{"card": "4012 8888 8888 1881"}',
        "number=4012-8888-8888-1881,",
        f"{MISTYPED} is no card",
        "the first digits 401288888 of a card",
        "somebody else's 6011111111111117",
    ],
)
def test_a_planted_card_number_is_found(text: str) -> None:
    assert cards_in(text)


def test_ids_and_times_are_not_taken_for_cards() -> None:
    assert cards_in(f"{uuid.uuid4()} 4bf92f3577b34da6a3ce929d0e0e4736 1763742198655712000 2026-11-21T16:23:18") == []
