"""Place an order as a customer would and check what came of it; with telemetry, find its trace and its metrics.

Addresses come from CART_ADDR, PRODUCT_CATALOG_ADDR and CHECKOUT_ADDR; JAEGER_URL and PROMETHEUS_URL are optional.
"""

import json
import os
import secrets
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable

import grpc

from shop import (
    address_pb2,
    cart_pb2,
    cart_pb2_grpc,
    checkout_pb2,
    checkout_pb2_grpc,
    empty_pb2,
    order_pb2,
    payment_pb2,
)
from shop import product_catalog_pb2_grpc as catalog_grpc

PATIENCE_SECONDS = 60
TRACED = {"cart", "product-catalog", "shipping", "currency", "payment", "email", "checkout"}

Metadata = tuple[tuple[str, str], ...]


def say(text: str) -> None:
    """Write a line of the test's log."""
    print(text, flush=True)  # noqa: T201 - the test's log


def eventually(what: str, check: Callable[[], bool]) -> None:
    """Repeat a check until it holds; AssertionError when patience ends."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not check():
        assert time.monotonic() < deadline, f"not within {PATIENCE_SECONDS} s: {what}"
        time.sleep(1)
    say(f"ok: {what}")


def channel(variable: str) -> grpc.Channel:
    """Open a channel that waits for its peer: network policies take a moment to learn of this pod."""
    opened = grpc.insecure_channel(os.environ[variable])
    grpc.channel_ready_future(opened).result(timeout=PATIENCE_SECONDS)
    return opened


def fill_cart(user_id: str, metadata: Metadata) -> dict[str, int]:
    """Put two products of the catalog into the cart; product ids and quantities."""
    products = catalog_grpc.ProductCatalogServiceStub(channel("PRODUCT_CATALOG_ADDR"))
    listed = products.ListProducts(empty_pb2.Empty(), timeout=10, metadata=metadata).products
    wanted = {listed[0].id: 2, listed[1].id: 1}
    carts = cart_pb2_grpc.CartServiceStub(channel("CART_ADDR"))
    for product_id, quantity in wanted.items():
        item = cart_pb2.CartItem(product_id=product_id, quantity=quantity)
        carts.AddItem(cart_pb2.AddItemRequest(user_id=user_id, item=item), timeout=10, metadata=metadata)
    return wanted


def place_order(user_id: str, metadata: Metadata) -> order_pb2.OrderResult:
    """Order what is in the cart, in EUR, with a card number made for tests."""
    card = payment_pb2.CreditCardInfo(
        credit_card_number="4242 4242 4242 4242",
        credit_card_cvv=123,
        credit_card_expiration_year=2099,
        credit_card_expiration_month=12,
    )
    address = address_pb2.Address(
        street_address="Kanalstraße 1", city="Berlin", state="BE", country="Germany", zip_code=10115
    )
    request = checkout_pb2.PlaceOrderRequest(
        user_id=user_id, user_currency="EUR", address=address, email="helm-test@example.com", credit_card=card
    )
    checkout = checkout_pb2_grpc.CheckoutServiceStub(channel("CHECKOUT_ADDR"))
    return checkout.PlaceOrder(request, timeout=20, metadata=metadata).order


def fetch(url: str) -> dict[str, object]:
    """GET a JSON document; an empty one when there is none yet."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 - the address is ours
            return dict(json.load(answer))
    except (urllib.error.URLError, TimeoutError):
        return {}


def traced_services(trace_id: str) -> set[str]:
    """Name the services with spans in a trace that Jaeger holds."""
    traces = fetch(f"{os.environ['JAEGER_URL']}/api/traces/{trace_id}").get("data") or []
    return {process["serviceName"] for trace in traces for process in trace["processes"].values()}


def metric_found(query: str) -> bool:
    """Tell whether Prometheus answers a query with a value above zero."""
    answer = fetch(f"{os.environ['PROMETHEUS_URL']}/api/v1/query?{urllib.parse.urlencode({'query': query})}")
    return any(float(sample["value"][1]) > 0 for sample in answer.get("data", {}).get("result", []))


def main() -> None:
    """Run the checks in order; an AssertionError or RpcError ends the test."""
    user_id = f"helm-test-{secrets.token_hex(8)}"
    trace_id = secrets.token_hex(16)
    metadata = (("traceparent", f"00-{trace_id}-{secrets.token_hex(8)}-01"),)
    wanted = fill_cart(user_id, metadata)
    order = place_order(user_id, metadata)
    say(f"order {order.order_id}, tracking {order.shipping_tracking_id}, trace {trace_id}")
    assert {line.item.product_id: line.item.quantity for line in order.items} == wanted
    assert {line.cost.currency_code for line in order.items} == {"EUR"}
    carts = cart_pb2_grpc.CartServiceStub(channel("CART_ADDR"))
    asked = cart_pb2.GetCartRequest(user_id=user_id)
    eventually("the cart is empty", lambda: not carts.GetCart(asked, timeout=10).items)
    if "JAEGER_URL" in os.environ:
        eventually("the trace has a span of every service", lambda: traced_services(trace_id) >= TRACED)
    if "PROMETHEUS_URL" in os.environ:
        calls = 'traces_span_metrics_calls_total{service_name="checkout"}'
        eventually("span metrics count the order", lambda: metric_found(calls))


if __name__ == "__main__":
    main()
