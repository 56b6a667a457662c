"""Every service beside a bare echo in the same run: calls a second, CPU a call, memory."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from google.protobuf.message import Message
from measure import cpu_seconds, load, resident_megabytes, started

from shop import (
    ad_pb2,
    address_pb2,
    cart_pb2,
    currency_pb2,
    email_pb2,
    money_pb2,
    order_pb2,
    payment_pb2,
    product_catalog_pb2,
    recommendation_pb2,
    shipping_pb2,
)
from shop_cli.local.processes import Shop

ECHO = "echo"
_ROUNDS = 5
_CALLS = 6_000
_WARM_UP_CALLS = 2_000

_ADDRESS = address_pb2.Address(
    street_address="1 Long Road", city="Bremen", state="HB", country="Germany", zip_code=28195
)
_ITEMS = [cart_pb2.CartItem(product_id="x", quantity=2)]
_PRICE = money_pb2.Money(currency_code="EUR", units=12, nanos=500_000_000)


def requests(product_id: str) -> Mapping[str, tuple[str, Message]]:
    """A plain request to each service, by its name; Charge and SendOrderConfirmation write to disk."""
    card = payment_pb2.CreditCardInfo(
        credit_card_number="4242424242424242",
        credit_card_cvv=123,
        credit_card_expiration_year=2040,
        credit_card_expiration_month=1,
    )
    order = order_pb2.OrderResult(
        order_id="bench",
        shipping_tracking_id="t",
        shipping_cost=_PRICE,
        shipping_address=_ADDRESS,
        items=[order_pb2.OrderItem(item=_ITEMS[0], cost=_PRICE)],
    )
    return {
        "cart": ("shop.CartService/GetCart", cart_pb2.GetCartRequest(user_id="bench")),
        "product-catalog": (
            "shop.ProductCatalogService/GetProduct",
            product_catalog_pb2.GetProductRequest(id=product_id),
        ),
        "currency": (
            "shop.CurrencyService/Convert",
            currency_pb2.CurrencyConversionRequest(**{"from": _PRICE}, to_code="USD"),
        ),
        "ad": ("shop.AdService/GetAds", ad_pb2.AdRequest(context_keys=["kitchen"])),
        "recommendation": (
            "shop.RecommendationService/ListRecommendations",
            recommendation_pb2.ListRecommendationsRequest(user_id="bench", product_ids=[product_id]),
        ),
        "shipping": (
            "shop.ShippingService/GetQuote",
            shipping_pb2.GetQuoteRequest(address=_ADDRESS, items=_ITEMS),
        ),
        "payment": ("shop.PaymentService/Charge", payment_pb2.ChargeRequest(amount=_PRICE, credit_card=card)),
        "email": (
            "shop.EmailService/SendOrderConfirmation",
            email_pb2.SendOrderConfirmationRequest(email="bench@example.com", order=order),
        ),
    }


@dataclass
class Figures:
    """One service's, of all rounds."""

    calls_a_second: list[float] = field(default_factory=list)
    cpu_microseconds: list[float] = field(default_factory=list)


async def measure(shop: Shop, product_id: str, echo_port: int) -> dict[str, dict[str, float]]:
    """Medians of interleaved rounds; `of_echo` compares CPU a call, the lower of the two by the higher."""
    async with started(Path(__file__).with_name("echo_service.py"), echo_port) as echo_pid:
        targets = {ECHO: (f"127.0.0.1:{echo_port}", echo_pid, *requests(product_id)["cart"])}
        for name, (method, request) in requests(product_id).items():
            targets[name] = (shop[name].address, shop[name].pid or 0, method, request)
        figures = {name: Figures() for name in targets}
        for name, (address, _pid, method, request) in targets.items():
            await load(address, method, request, _WARM_UP_CALLS if name != "email" else 200)
        for _ in range(_ROUNDS):
            for name, target in targets.items():
                await _round(figures[name], *target, calls=_CALLS if name != "email" else 400)
        rows = {name: _summary(figures[name], figures[ECHO]) for name in targets}
        for name, row in rows.items():
            row["rss_megabytes"] = round(resident_megabytes(targets[name][1]), 1)
    return rows


async def _round(figures: Figures, address: str, pid: int, method: str, request: Message, *, calls: int) -> None:
    before = cpu_seconds([pid])
    figures.calls_a_second.append(await load(address, method, request, calls))
    await asyncio.sleep(0.3)  # what it exports of these calls is part of their cost
    figures.cpu_microseconds.append((cpu_seconds([pid]) - before) / calls * 1e6)


def _summary(figures: Figures, echo: Figures) -> dict[str, float]:
    return {
        "calls_a_second": round(median(figures.calls_a_second)),
        "cpu_microseconds": round(median(figures.cpu_microseconds)),
        "of_echo": round(median(echo.cpu_microseconds) / median(figures.cpu_microseconds), 2),
    }


async def memory_after(shop: Shop, product_id: str, calls: int) -> dict[str, dict[str, float]]:
    """Resident memory of the in-memory readers after that many calls and after as many again."""
    rows: dict[str, dict[str, float]] = {}
    for name in ("cart", "product-catalog", "currency", "ad", "recommendation", "shipping"):
        method, request = requests(product_id)[name]
        pid = shop[name].pid or 0
        await load(shop[name].address, method, request, calls)
        first = resident_megabytes(pid)
        await load(shop[name].address, method, request, calls)
        rows[name] = {"megabytes": round(first, 1), "megabytes_later": round(resident_megabytes(pid), 1)}
    return rows
