"""A running shop exports traces, metrics with exemplars, and logs with trace ids over OTLP."""

from collections.abc import Iterator
from contextlib import suppress

import grpc
import pytest
import pytest_asyncio
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.metrics.v1.metrics_pb2 import HistogramDataPoint

from shop.cart_pb2 import AddItemRequest, CartItem, GetCartRequest
from shop.cart_pb2_grpc import CartServiceStub
from shop.checkout_pb2_grpc import CheckoutServiceStub
from shop_cli.local.otlp_receiver import attributes_of, service_of
from shop_cli.local.spans import Span
from shop_internal.orders_pb2 import ListOrdersRequest
from shop_internal.orders_pb2_grpc import OrderJournalStub
from shop_kit.waiting import wait_until
from shop_lab.world.running_shop import RunningShop, order_request

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
PLACE_ORDER = "shop.CheckoutService/PlaceOrder"
EVERY_HOP = {"cart", "product-catalog", "shipping", "currency", "payment", "email", "checkout"}


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def trace(shop: RunningShop) -> list[Span]:
    """Return the exported trace of an order whose products and rates checkout had not cached."""
    request = order_request(currency="CHF")
    for product in (await shop.products())[-3:]:
        item = CartItem(product_id=product.id, quantity=1)
        await CartServiceStub(shop.channels["cart"]).AddItem(AddItemRequest(user_id=request.user_id, item=item))
    journal = OrderJournalStub(shop.internal_channels["checkout"])

    async def confirmed() -> bool:
        return not any(order.outbox for order in (await journal.ListOrders(ListOrdersRequest(limit=20))).orders)

    # The call that sends the confirmation may be in the trace of an order of another test, a moment before.
    await wait_until(confirmed)
    metadata = (("traceparent", f"00-{TRACE_ID}-00f067aa0ba902b7-01"),)
    await CheckoutServiceStub(shop.channels["checkout"]).PlaceOrder(request, metadata=metadata)

    def exported() -> list[Span]:
        return [span for span in shop.received.spans if span.trace_id == TRACE_ID]

    def complete() -> bool:
        ids = {span.span_id for span in exported()}
        tops = [span.name for span in exported() if span.parent_id not in ids]
        return tops == [PLACE_ORDER] and {span.service for span in exported() if span.kind == "SERVER"} == EVERY_HOP

    # Services export independently. If a span is missing after the timeout, the tests report which.
    with suppress(TimeoutError):
        await wait_until(complete)
    return exported()


def points(shop: RunningShop, service: str, name: str, method: str) -> Iterator[HistogramDataPoint]:
    for source, metric in shop.received.metrics:
        if (source, metric.name) == (service, name):
            for point in metric.histogram.data_points:
                if attributes_of(point.attributes)["rpc.method"] == method:
                    yield point


def logs(shop: RunningShop) -> Iterator[tuple[str, LogRecord]]:
    for message in shop.received.messages:
        if isinstance(message, ExportLogsServiceRequest):
            for group in message.resource_logs:
                for scope in group.scope_logs:
                    for record in scope.log_records:
                        yield service_of(group.resource), record


async def test_an_order_is_exported_as_one_trace_with_a_span_of_every_service(trace: list[Span]) -> None:
    assert {span.service for span in trace if span.kind == "SERVER"} == EVERY_HOP


async def test_every_span_of_an_order_has_its_parent_in_the_trace(trace: list[Span]) -> None:
    ids = {span.span_id for span in trace}
    assert [span.name for span in trace if span.parent_id not in ids] == [PLACE_ORDER]


@pytest.mark.usefixtures("trace")
async def test_health_checks_and_reflection_are_not_traced(shop: RunningShop) -> None:
    services = {process.name for process in shop.processes}
    served = [span for span in shop.received.spans if span.service in services and span.kind == "SERVER"]
    assert [span.name for span in served if not span.name.startswith("shop.")] == []


async def test_the_statements_of_an_order_are_in_its_trace(trace: list[Span]) -> None:
    stored = {(span.service, span.name) for span in trace if "db.system.name" in span.attributes}
    assert stored >= {
        ("checkout", "INSERT orders; INSERT order_events"),
        ("payment", "INSERT charges"),
        ("shipping", "INSERT shipments"),
    }


async def test_every_service_with_a_sqlite_file_exports_how_full_its_volume_is(shop: RunningShop) -> None:
    def services() -> set[str]:
        return {service for service, metric in shop.received.metrics if metric.name == "shop.store.volume.usage"}

    assert await wait_until(lambda: services() == {"checkout", "payment", "shipping", "email"})


async def test_the_duration_of_orders_is_a_histogram_with_the_outcome(shop: RunningShop) -> None:
    await shop.order()

    def counted() -> bool:
        return any(
            attributes_of(point.attributes)
            == {"rpc.system.name": "grpc", "rpc.method": PLACE_ORDER, "rpc.response.status_code": "OK"}
            and point.count
            for point in points(shop, "checkout", "rpc.server.call.duration", PLACE_ORDER)
        )

    await wait_until(counted)


async def test_exemplars_of_the_duration_name_traces_of_orders(shop: RunningShop) -> None:
    await shop.order()

    def exemplars() -> set[str]:
        found = points(shop, "checkout", "rpc.server.call.duration", PLACE_ORDER)
        return {exemplar.trace_id.hex() for point in found for exemplar in point.exemplars}

    def traces() -> set[str]:
        return {span.trace_id for span in shop.received.spans if span.name == PLACE_ORDER}

    assert await wait_until(exemplars)
    assert await wait_until(lambda: exemplars() <= traces())


async def test_clients_record_the_duration_of_their_calls(shop: RunningShop) -> None:
    await shop.order()
    await wait_until(
        lambda: any(points(shop, "checkout", "rpc.client.call.duration", "shop.PaymentService/Charge")),
    )


async def test_rejected_calls_are_counted_by_status_code(shop: RunningShop) -> None:
    with pytest.raises(grpc.aio.AioRpcError):
        await CartServiceStub(shop.channels["cart"]).GetCart(GetCartRequest())

    def codes() -> set[object]:
        found = points(shop, "cart", "rpc.server.call.duration", "shop.CartService/GetCart")
        return {attributes_of(point.attributes)["rpc.response.status_code"] for point in found}

    await wait_until(lambda: "INVALID_ARGUMENT" in codes())


@pytest.mark.usefixtures("trace")
async def test_log_lines_of_an_order_have_its_trace_id(shop: RunningShop) -> None:
    await wait_until(lambda: any(record.trace_id.hex() == TRACE_ID for _, record in logs(shop)))


async def test_every_service_exports_its_memory_usage(shop: RunningShop) -> None:
    def exporting() -> set[str]:
        return {service for service, metric in shop.received.metrics if metric.name == "process.memory.usage"}

    await wait_until(lambda: exporting() >= {process.name for process in shop.processes})
