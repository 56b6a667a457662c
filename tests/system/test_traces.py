"""The trace of an order, as a running shop exports it over OTLP."""

from collections import Counter
from contextlib import suppress

import pytest
import pytest_asyncio

from shop.cart_pb2 import AddItemRequest, CartItem
from shop.cart_pb2_grpc import CartServiceStub
from shop.checkout_pb2_grpc import CheckoutServiceStub
from shop_cli.local.spans import Span
from shop_kit.running_shop import RunningShop, order_request
from shop_kit.waiting import wait_until

TRACE_ID, PARENT_ID = "0af7651916cd43dd8448eb211c80319c", "00f067aa0ba902b7"

# These may end after the order: checkout does not wait for the e-mail, and for the cart a second only.
OUTBOX = {"shop.internal.Confirmations/AcceptConfirmations", "shop.internal.OrderedCart/RemoveAllOrdered"}
# The calls of an order of one product in a foreign currency: caller, method, callee.
HOPS = {
    ("checkout", "shop.CartService/GetCart", "cart"),
    ("checkout", "shop.ProductCatalogService/GetProduct", "product-catalog"),
    ("checkout", "shop.ShippingService/GetQuote", "shipping"),
    ("checkout", "shop.CurrencyService/Convert", "currency"),
    ("checkout", "shop.PaymentService/Charge", "payment"),
    ("checkout", "shop.ShippingService/ShipOrder", "shipping"),
    ("checkout", "shop.internal.Confirmations/AcceptConfirmations", "email"),
    ("checkout", "shop.internal.OrderedCart/RemoveAllOrdered", "cart"),
}
CONVERT = ("checkout", "shop.CurrencyService/Convert", "currency")
# Only the first e-mail of a minute reads the names of products.
NAMES_OF_PRODUCTS = ("email", "shop.ProductCatalogService/ListProducts", "product-catalog")


# In a currency and to a country which no other test uses: checkout has not cached them.
REQUEST = order_request("user-of-the-trace", currency="NOK")
REQUEST.address.country = "Iceland"


def hops(spans: list[Span]) -> Counter[tuple[str, str, str]]:
    """Count caller, method and callee of each call that has a client and a server span."""
    callers = {span.span_id: span.service for span in spans}
    return Counter(
        (callers[span.parent_id], span.name, span.service)
        for span in spans
        if span.kind == "SERVER" and span.parent_id in callers
    )


def tops(spans: list[Span]) -> list[tuple[str, str]]:
    """Return the names of the spans whose parents are not in the trace, and the ids of these."""
    ids = {span.span_id for span in spans}
    return [(span.name, span.parent_id) for span in spans if span.parent_id not in ids]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def trace(shop: RunningShop) -> list[Span]:
    """Return the exported spans of an order of one product."""
    # The call that sends the confirmation may be in the trace of an order of another test, a moment before.
    await shop.wait_until_notified()
    item = CartItem(product_id=(await shop.products())[-1].id, quantity=1)  # no other test orders it
    await CartServiceStub(shop.channels["cart"]).AddItem(AddItemRequest(user_id=REQUEST.user_id, item=item))
    metadata = (("traceparent", f"00-{TRACE_ID}-{PARENT_ID}-01"),)
    await CheckoutServiceStub(shop.channels["checkout"]).PlaceOrder(REQUEST, metadata=metadata)

    def exported() -> list[Span]:
        return [span for span in shop.received.spans if span.trace_id == TRACE_ID]

    # Services export independently. If a span is missing after the timeout, the tests report which.
    with suppress(TimeoutError):
        await wait_until(lambda: len(tops(exported())) == 1 and set(hops(exported())) >= HOPS)
    return exported()


async def test_the_trace_of_an_order_has_every_call_once_below_that_of_its_caller(trace: list[Span]) -> None:
    found = hops(trace)
    assert set(found) - {NAMES_OF_PRODUCTS} == HOPS
    assert {hop for hop, count in found.items() if count != 1 and hop[1] not in OUTBOX} <= {CONVERT}
    assert tops(trace) == [("shop.CheckoutService/PlaceOrder", PARENT_ID)]


async def test_an_order_traces_its_statements_and_no_personal_data(trace: list[Span]) -> None:
    stored = {(span.service, span.name) for span in trace if "db.system.name" in span.attributes}
    assert stored >= {
        ("checkout", "INSERT orders; INSERT order_events"),
        ("payment", "INSERT charges"),
        ("shipping", "INSERT shipments"),
    }
    card, street = REQUEST.credit_card.credit_card_number, REQUEST.address.street_address
    assert [value for value in (REQUEST.user_id, REQUEST.email, street, card) if value in repr(trace)] == []


@pytest.mark.usefixtures("trace")
async def test_health_checks_and_reflection_are_not_traced(shop: RunningShop) -> None:
    services = set(shop.channels)
    served = [span for span in shop.received.spans if span.service in services and span.kind == "SERVER"]
    assert [span.name for span in served if not span.name.startswith("shop.")] == []
