"""The trace of an order, and its log lines, as a running shop exports them over OTLP."""

import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import grpc
import pytest
import pytest_asyncio
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from shop.cart_pb2 import AddItemRequest, CartItem
from shop.cart_pb2_grpc import CartServiceStub
from shop.checkout_pb2 import PlaceOrderRequest
from shop.checkout_pb2_grpc import CheckoutServiceStub
from shop_cli.local.spans import Span
from shop_internal.orders_pb2 import ListOrdersRequest
from shop_internal.orders_pb2_grpc import OrderJournalStub
from shop_kit.waiting import wait_until
from shop_lab.world.received_telemetry import service_of
from shop_lab.world.running_shop import RunningShop, order_request

TRACE_ID, PARENT_ID = "0af7651916cd43dd8448eb211c80319c", "00f067aa0ba902b7"
REFUSED_TRACE_ID, UNSAMPLED_TRACE_ID = "1af7651916cd43dd8448eb211c80319c", "2af7651916cd43dd8448eb211c80319c"
PLACE_ORDER, CHARGE = "shop.CheckoutService/PlaceOrder", "shop.PaymentService/Charge"
AMEX = "378282246310005"

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

    def one(self, name: str, kind: str) -> Span:
        """Return the only span of that name and kind."""
        (span,) = [span for span in self.spans if (span.name, span.kind) == (name, kind)]
        return span


async def place_order(shop: RunningShop, trace_id: str, *, flags: str = "01", card: str = "") -> PlaceOrderRequest:
    """Order a product in a currency to a country, none of which other tests use: checkout has not cached them."""
    request = order_request(currency="CHF")
    request.address.country = "Iceland"
    if card:
        request.credit_card.credit_card_number = card
    item = CartItem(product_id=(await shop.products())[-1].id, quantity=1)
    await CartServiceStub(shop.channels["cart"]).AddItem(AddItemRequest(user_id=request.user_id, item=item))
    metadata = (("traceparent", f"00-{trace_id}-{PARENT_ID}-{flags}"),)
    with suppress(grpc.aio.AioRpcError):
        await CheckoutServiceStub(shop.channels["checkout"]).PlaceOrder(request, metadata=metadata)
    return request


def exported(shop: RunningShop, trace_id: str) -> list[Span]:
    return [span for span in shop.received.spans if span.trace_id == trace_id]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
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


def logs(shop: RunningShop) -> Iterator[tuple[str, LogRecord]]:
    for message in shop.received.messages:
        if isinstance(message, ExportLogsServiceRequest):
            for group in message.resource_logs:
                for scope in group.scope_logs:
                    for record in scope.log_records:
                        yield service_of(group.resource), record


async def test_the_trace_of_an_order_has_every_call_once(trace: Trace) -> None:
    found = hops(trace)
    assert set(found) - {NAMES_OF_PRODUCTS} == HOPS
    assert {hop for hop, count in found.items() if count != 1 and hop[1] not in OUTBOX} <= {CONVERT}


async def test_an_order_joins_the_trace_of_its_caller_and_its_spans_descend_from_one(trace: Trace) -> None:
    assert trace.tops == [PLACE_ORDER]
    assert trace.one(PLACE_ORDER, "SERVER").parent_id == PARENT_ID


async def test_client_and_server_spans_of_a_call_have_the_same_name(trace: Trace) -> None:
    for span in trace.spans:
        if span.kind == "SERVER" and span.name != PLACE_ORDER:
            caller = trace.by_id[span.parent_id]
            assert (caller.kind, caller.name) == ("CLIENT", span.name)


async def test_a_span_lies_within_its_parent_in_time(trace: Trace) -> None:
    for span in trace.spans:
        parent = trace.by_id.get(span.parent_id)
        if parent and span.name not in OUTBOX:
            assert parent.started_nanos <= span.started_nanos <= span.ended_nanos <= parent.ended_nanos


async def test_a_call_has_system_method_status_and_at_the_client_the_address_of_the_server(trace: Trace) -> None:
    attributes = {"rpc.system.name": "grpc", "rpc.method": CHARGE, "rpc.response.status_code": "OK"}
    assert trace.one(CHARGE, "SERVER").attributes == attributes
    client = trace.one(CHARGE, "CLIENT").attributes
    assert client == {**attributes, "server.address": "127.0.0.1", "server.port": client["server.port"]}


async def test_a_refused_charge_is_an_error_of_the_client_span_only(shop: RunningShop) -> None:
    request = await place_order(shop, REFUSED_TRACE_ID, card=AMEX)
    await wait_until(lambda: sum(span.name == CHARGE for span in exported(shop, REFUSED_TRACE_ID)) == 2)
    refused = Trace(request, exported(shop, REFUSED_TRACE_ID))
    server, client = refused.one(CHARGE, "SERVER"), refused.one(CHARGE, "CLIENT")
    assert (server.failed, client.failed) == (False, True)
    assert server.attributes["shop.error.reason"] == "BRAND_NOT_ACCEPTED"
    assert "error.type" not in server.attributes
    assert client.attributes["rpc.response.status_code"] == "FAILED_PRECONDITION"


async def test_an_unsampled_trace_gets_no_spans(shop: RunningShop) -> None:
    await place_order(shop, UNSAMPLED_TRACE_ID, flags="00")
    later = uuid.uuid4().hex
    await place_order(shop, later)
    # Every service exports its spans in their order.
    await wait_until(
        lambda: set(hops(Trace(order_request(), exported(shop, later)))) >= {("checkout", CHARGE, "payment")}
    )
    assert exported(shop, UNSAMPLED_TRACE_ID) == []


async def test_no_personal_data_of_an_order_is_in_its_trace(trace: Trace) -> None:
    request, written = trace.request, repr(trace.spans)
    secrets = [request.user_id, request.email, request.address.street_address, request.credit_card.credit_card_number]
    assert [value for value in secrets if value in written] == []


@pytest.mark.usefixtures("trace")
async def test_health_checks_and_reflection_are_not_traced(shop: RunningShop) -> None:
    services = {process.name for process in shop.processes}
    served = [span for span in shop.received.spans if span.service in services and span.kind == "SERVER"]
    assert [span.name for span in served if not span.name.startswith("shop.")] == []


async def test_the_statements_of_an_order_are_in_its_trace(trace: Trace) -> None:
    stored = {(span.service, span.name) for span in trace.spans if "db.system.name" in span.attributes}
    assert stored >= {
        ("checkout", "INSERT orders; INSERT order_events"),
        ("payment", "INSERT charges"),
        ("shipping", "INSERT shipments"),
    }


@pytest.mark.usefixtures("trace")
async def test_log_lines_of_an_order_have_its_trace_id(shop: RunningShop) -> None:
    await wait_until(lambda: any(record.trace_id.hex() == TRACE_ID for _, record in logs(shop)))
