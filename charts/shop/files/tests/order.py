"""Place an order as a customer would and check its effects; with telemetry, find its trace, metrics and logs.

Addresses are read from CART_ADDR, PRODUCT_CATALOG_ADDR and CHECKOUT_ADDR; JAEGER_URL, PROMETHEUS_URL and LOKI_URL are
optional.
"""

import json
import os
import secrets
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable

import grpc
from health import final_status, open_channel

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

TIMEOUT_SECONDS = 60
TRACED = {"cart", "product-catalog", "shipping", "currency", "payment", "email", "checkout"}

Metadata = tuple[tuple[str, str], ...]


def log(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - the test's log


def require(claim: str, *, true: bool) -> None:
    """Exit with the claim unless it is true. Images run Python without `assert`."""
    if not true:
        sys.exit(f"wrong: {claim}")


def eventually(claim: str, check: Callable[[], bool]) -> None:
    """Repeat a check until it is true; exit with the claim when the timeout expires."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not check():
        require(f"{claim} within {TIMEOUT_SECONDS} s", true=time.monotonic() < deadline)
        time.sleep(1)
    log(f"ok: {claim}")


def channel(variable: str) -> grpc.Channel:
    """Open a channel to a service that serves: policies of the network and a mesh admit a new pod after a moment."""
    require(f"{variable} serves", true=final_status("grpc", "", os.environ[variable]) == "SERVING")
    return open_channel(os.environ[variable])


def fill_cart(user_id: str, metadata: Metadata) -> dict[str, int]:
    """Add two products of the catalog to the cart; return quantities by product id."""
    products = catalog_grpc.ProductCatalogServiceStub(channel("PRODUCT_CATALOG_ADDR"))
    listed = products.ListProducts(empty_pb2.Empty(), timeout=10, metadata=metadata).products
    quantities = {listed[0].id: 2, listed[1].id: 1}
    carts = cart_pb2_grpc.CartServiceStub(channel("CART_ADDR"))
    for product_id, quantity in quantities.items():
        item = cart_pb2.CartItem(product_id=product_id, quantity=quantity)
        carts.AddItem(cart_pb2.AddItemRequest(user_id=user_id, item=item), timeout=10, metadata=metadata)
    return quantities


def place_order(user_id: str, metadata: Metadata) -> order_pb2.OrderResult:
    """Order the content of the cart in EUR, with a test card number."""
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
    """GET a JSON object; return an empty one if the request fails."""
    try:
        with urllib.request.urlopen(url, timeout=5) as response:  # noqa: S310 - the address is ours
            return dict(json.load(response))
    except (urllib.error.URLError, TimeoutError):
        return {}


def traced_services(trace_id: str) -> set[str]:
    """Return the services that have spans in a trace in Jaeger."""
    traces = fetch(f"{os.environ['JAEGER_URL']}/api/traces/{trace_id}").get("data") or []
    return {process["serviceName"] for trace in traces for process in trace["processes"].values()}


def metric_found(query: str) -> bool:
    """Return whether a Prometheus query has a value above zero."""
    response = fetch(f"{os.environ['PROMETHEUS_URL']}/api/v1/query?{urllib.parse.urlencode({'query': query})}")
    return any(float(sample["value"][1]) > 0 for sample in response.get("data", {}).get("result", []))


def logged_services(trace_id: str) -> set[str]:
    """Return the services that have log lines of a trace in Loki."""
    query = urllib.parse.urlencode({"query": f'{{service_name=~".+"}} | trace_id="{trace_id}"', "since": "15m"})
    streams = fetch(f"{os.environ['LOKI_URL']}/loki/api/v1/query_range?{query}").get("data", {}).get("result", [])
    return {stream["stream"]["service_name"] for stream in streams}


def main() -> None:
    """Run the checks in order; exit, or raise RpcError, if one fails."""
    user_id = f"helm-test-{secrets.token_hex(8)}"
    trace_id = secrets.token_hex(16)
    traceparent = f"00-{trace_id}-{secrets.token_hex(8)}-01"
    metadata = (("traceparent", traceparent), ("tracestate", "shop=keep"))  # sampled at its head and at its tail
    quantities = fill_cart(user_id, metadata)
    order = place_order(user_id, metadata)
    log(f"order {order.order_id}, tracking {order.shipping_tracking_id}, trace {trace_id}")
    ordered = {line.item.product_id: line.item.quantity for line in order.items}
    require("the order has what was in the cart", true=ordered == quantities)
    require("its costs are in EUR", true={line.cost.currency_code for line in order.items} == {"EUR"})
    carts = cart_pb2_grpc.CartServiceStub(channel("CART_ADDR"))
    request = cart_pb2.GetCartRequest(user_id=user_id)
    eventually("the cart is empty", lambda: not carts.GetCart(request, timeout=10).items)
    if "JAEGER_URL" in os.environ:
        eventually("the trace has a span of every service", lambda: traced_services(trace_id) >= TRACED)
    if "PROMETHEUS_URL" in os.environ:
        calls = 'traces_span_metrics_calls_total{service_name="checkout"}'
        eventually("span metrics count the order", lambda: metric_found(calls))
        served = 'rpc_server_call_duration_seconds_count{service_name="checkout",k8s_pod_name!=""}'
        eventually("metrics of checkout's pod count the order", lambda: metric_found(served))
    if "LOKI_URL" in os.environ:
        eventually("the log store has checkout's lines of the order", lambda: "checkout" in logged_services(trace_id))


if __name__ == "__main__":
    main()
