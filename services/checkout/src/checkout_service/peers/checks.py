"""Checks the response fields that orders rely on. Channels run these checks on each response as it arrives."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from chassis.rpc.client import Check
from chassis.rpc.wire import is_price
from chassis.values.fields import CONTROL, is_seconds
from chassis.values.money import is_currency_code
from shop import money_pb2

MAX_LINES = 200  # our own cart service has the same limit
_MAX_INT32 = 2**31 - 1
_MAX_TEXT_LENGTH = 256

_PRODUCT_ID = re.compile(rf"[^\t\n\r{CONTROL}]{{1,{_MAX_TEXT_LENGTH}}}")
_VERSION = re.compile(r"[\x21-\x7e]{0,128}")

Parts = Iterator[tuple[str, bool]]
Trailers = Mapping[str, str]


def _check_cart(request: Any, cart: Any, trailers: Trailers) -> Parts:
    yield "user_id", cart.user_id in {"", request.user_id}
    yield "items", len(cart.items) <= MAX_LINES
    quantities: Counter[str] = Counter()
    for item in cart.items:
        quantities[item.product_id] += item.quantity
    yield "items.product_id", all(map(_PRODUCT_ID.fullmatch, quantities))
    yield "items.quantity", all(item.quantity >= 1 for item in cart.items)
    yield "items.quantity", max(quantities.values(), default=0) <= _MAX_INT32
    for name in ("etag", "cart-generation", "ordered-etag"):
        yield name, _VERSION.fullmatch(trailers.get(name, "")) is not None


def _check_converted(request: Any, amount: money_pb2.Money, _: Trailers) -> Parts:
    before = getattr(request, "from")
    yield "amount", is_price(amount, request.to_code)
    yield "amount", bool(amount.units or amount.nanos) == bool(before.units or before.nanos)


def _check_charge(request: Any, charge: Any, trailers: Trailers) -> Parts:
    number = _digits(request.credit_card.credit_card_number)
    yield "transaction_id", _is_text(charge.transaction_id)
    yield "transaction_id", not number or number not in _digits(charge.transaction_id)
    yield "charged-at", is_seconds(trailers.get("charged-at") or "0")


def _check_charge_outcome(_request: Any, response: Any, _: Trailers) -> Parts:
    yield "outcome", response.WhichOneof("outcome") is not None
    if response.HasField("charged"):
        amount = response.charged.amount
        yield "charged.transaction_id", _is_text(response.charged.transaction_id)
        yield "charged.amount", is_currency_code(amount.currency_code) and is_price(amount, amount.currency_code)
        yield "charged.recorded_at", 0 <= response.charged.recorded_at.seconds < 10**11


CHECKS: Mapping[str, Check] = {
    "shop.CartService/GetCart": _check_cart,
    "shop.ProductCatalogService/GetProduct": lambda request, product, _: (
        ("id", product.id == request.id),
        ("price_usd", is_price(product.price_usd, "USD")),
    ),
    "shop.ShippingService/GetQuote": lambda _request, quote, _: [("cost_usd", is_price(quote.cost_usd, "USD"))],
    "shop.CurrencyService/Convert": _check_converted,
    "shop.PaymentService/Charge": _check_charge,
    "shop.internal.PaymentLedger/ResolveOrFence": _check_charge_outcome,
    "shop.ShippingService/ShipOrder": lambda _request, reply, _: [("tracking_id", _is_text(reply.tracking_id))],
    "shop.internal.ShipmentManifest/ResolveOrFence": lambda _request, reply, _: (
        ("outcome", reply.WhichOneof("outcome") is not None),
        ("shipped.tracking_id", not reply.HasField("shipped") or _is_text(reply.shipped.tracking_id)),
    ),
}


def _is_text(value: str) -> bool:
    return 0 < len(value) <= _MAX_TEXT_LENGTH and value.isprintable()


def _digits(text: str) -> str:
    return "".join(filter(str.isdigit, text))
