"""The trace of an order, as a running shop exports it over OTLP."""

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass

import pytest
import pytest_asyncio

from shop.cart_pb2 import AddItemRequest, CartItem
from shop.cart_pb2_grpc import CartServiceStub
from shop.checkout_pb2 import PlaceOrderRequest
from shop.checkout_pb2_grpc import CheckoutServiceStub
from shop_cli.local.spans import Span
from shop_internal.orders_pb2 import ListOrdersRequest
from shop_internal.orders_pb2_grpc import OrderJournalStub
from shop_kit.running_shop import RunningShop, order_request
from shop_kit.waiting import wait_until

TRACE_ID, PARENT_ID = "0af7651916cd43dd8448eb211c80319c", "00f067aa0ba902b7"
PLACE_ORDER, CHARGE = "shop.CheckoutService/PlaceOrder", "shop.PaymentService/Charge"

# These may end after the order: checkout does not wait for the e-mail, and for the cart a second only.
OUTBOX = {"shop.internal.Confirmations/AcceptConfirmations", "shop.internal.OrderedCart/RemoveAllOrdered"}
# The calls of an order of one product in a foreign currency: caller, method, callee.
HOPS = {
    ("checkout", "shop.CartService/GetCart", "cart"),
    ("checkout", "shop.ProductCatalogService/GetProduct", "product-catalog"),
    ("checkout", "shop.ShippingService/GetQuote", "shipping"),
    ("checkout", "shop.CurrencyService/Convert", "currency"),
    ("checkout", CHARGE, "payment"),
    ("checkout", "shop.ShippingService/ShipOrder", "shipping"),
    ("checkout", "shop.internal.Confirmations/AcceptConfirmations", "email"),
    ("checkout", "shop.internal.OrderedCart/RemoveAllOrdered", "cart"),
}
CONVERT = ("checkout", "shop.CurrencyService/Convert", "currency")
# Only the first e-mail of a minute reads the names of products.
NAMES_OF_PRODUCTS = ("email", "shop.ProductCatalogService/ListProducts", "product-catalog")


@dataclass(frozen=True)
class Trace:
    """The exported trace of an order."""

    request: PlaceOrderRequest
    spans: list[Span]

    @property
    def by_id(self) -> dict[str, Span]:
        return {span.span_id: span for span in self.spans}

    @property
    def tops(self) -> list[str]:
        """The names of the spans whose parents are not in the trace."""
        return [span.name for span in self.spans if span.parent_id not in self.by_id]


async def place_order(shop: RunningShop, trace_id: str) -> PlaceOrderRequest:
    """Order a product in a currency to a country, none of which other tests use: checkout has not cached them."""
    request = order_request(currency="NOK")
    request.address.country = "Iceland"
    item = CartItem(product_id=(await shop.products())[-1].id, quantity=1)
    await CartServiceStub(shop.channels["cart"]).AddItem(AddItemRequest(user_id=request.user_id, item=item))
    metadata = (("traceparent", f"00-{trace_id}-{PARENT_ID}-01"),)
    await CheckoutServiceStub(shop.channels["checkout"]).PlaceOrder(request, metadata=metadata)
    return request


def exported(shop: RunningShop, trace_id: str) -> list[Span]:
    return [span for span in shop.received.spans if span.trace_id == trace_id]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def trace(shop: RunningShop) -> Trace:
    """Return the exported trace of an order."""
    journal = OrderJournalStub(shop.internal_channels["checkout"])

    async def confirmed() -> bool:
        return not any(order.outbox for order in (await journal.ListOrders(ListOrdersRequest(limit=20))).orders)

    # The call that sends the confirmation may be in the trace of an order of another test, a moment before.
    await wait_until(confirmed)
    request = await place_order(shop, TRACE_ID)

    def complete() -> bool:
        found = Trace(request, exported(shop, TRACE_ID))
        return found.tops == [PLACE_ORDER] and set(hops(found)) >= HOPS

    # Services export independently. If a span is missing after the timeout, the tests report which.
    with suppress(TimeoutError):
        await wait_until(complete)
    return Trace(request, exported(shop, TRACE_ID))


def hops(trace: Trace) -> Counter[tuple[str, str, str]]:
    """Count caller, method and callee of each call that has a client and a server span."""
    by_id = trace.by_id
    return Counter(
        (by_id[span.parent_id].service, span.name, span.service)
        for span in trace.spans
        if span.kind == "SERVER" and span.parent_id in by_id
    )


async def test_the_trace_of_an_order_has_every_call_once_below_that_of_its_caller(trace: Trace) -> None:
    found = hops(trace)
    assert set(found) - {NAMES_OF_PRODUCTS} == HOPS
    assert {hop for hop, count in found.items() if count != 1 and hop[1] not in OUTBOX} <= {CONVERT}
    assert trace.tops == [PLACE_ORDER]
    assert [span.parent_id for span in trace.spans if span.name == PLACE_ORDER] == [PARENT_ID]


async def test_an_order_traces_its_statements_and_no_personal_data(trace: Trace) -> None:
    stored = {(span.service, span.name) for span in trace.spans if "db.system.name" in span.attributes}
    assert stored >= {
        ("checkout", "INSERT orders; INSERT order_events"),
        ("payment", "INSERT charges"),
        ("shipping", "INSERT shipments"),
    }
    request, written = trace.request, repr(trace.spans)
    secrets = [request.user_id, request.email, request.address.street_address, request.credit_card.credit_card_number]
    assert [value for value in secrets if value in written] == []


@pytest.mark.usefixtures("trace")
async def test_health_checks_and_reflection_are_not_traced(shop: RunningShop) -> None:
    services = set(shop.channels)
    served = [span for span in shop.received.spans if span.service in services and span.kind == "SERVER"]
    assert [span.name for span in served if not span.name.startswith("shop.")] == []
