"""Whatever a running shop exports is listed in `chassis.telemetry.semconv`, with values that are bounded."""

import re
from collections.abc import Iterator

import grpc
import pytest
import pytest_asyncio
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric as WireMetric

from chassis.telemetry import semconv
from chassis.telemetry.semconv import Kind
from shop.cart_pb2 import GetCartRequest
from shop.cart_pb2_grpc import CartServiceStub
from shop.checkout_pb2_grpc import CheckoutServiceStub
from shop_cli.local.otlp_receiver import attributes_of
from shop_kit.running_shop import RunningShop, order_request
from shop_kit.waiting import wait_until

METRICS = {metric.name: metric for metric in semconv.METRICS}
# What every process exports, whatever it does.
OF_EVERY_PROCESS = {
    semconv.ACTIVE_REQUESTS,
    semconv.LOOP_LAG,
    semconv.PROCESS_CPU,
    semconv.PROCESS_FILES,
    semconv.PROCESS_MEMORY,
    semconv.PROCESS_THREADS,
    semconv.GC_COLLECTIONS,
    semconv.TELEMETRY_DROPPED,
}
# UUIDs, numbers of orders and cards, addresses of e-mail.
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-|[0-9]{6,}|[0-9a-f]{16,}|@")


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def exported(shop: RunningShop) -> list[tuple[str, WireMetric]]:
    """Return the metrics of a shop after an order, a rejected one, and pages of the storefront that exist or do not."""
    await shop.order()
    with pytest.raises(grpc.aio.AioRpcError):
        await CartServiceStub(shop.channels["cart"]).GetCart(GetCartRequest())
    with pytest.raises(grpc.aio.AioRpcError):  # the cart is empty
        await CheckoutServiceStub(shop.channels["checkout"]).PlaceOrder(order_request())
    expected = {metric.name for metric in OF_EVERY_PROCESS}

    def complete() -> bool:
        by_service: dict[str, set[str]] = {process.name: set() for process in shop.processes}
        for service, metric in shop.received.metrics:
            by_service.setdefault(service, set()).add(metric.name)
        # Of a failed call and of one between services, whose processes export at different times.
        attributes = {key for span in shop.received.spans for key in span.attributes}
        spans = attributes >= {semconv.ERROR_REASON, semconv.SERVER_ADDRESS}
        return spans and all(names >= expected for names in by_service.values())

    assert await wait_until(complete)
    return shop.received.metrics


def kind_of(metric: WireMetric) -> set[Kind]:
    if metric.HasField("histogram"):
        return {Kind.HISTOGRAM}
    if metric.HasField("gauge"):
        return {Kind.GAUGE}
    return {Kind.COUNTER} if metric.sum.is_monotonic else {Kind.UP_DOWN_COUNTER}


def points_of(metric: WireMetric) -> Iterator[dict[str, object]]:
    data = getattr(metric, str(metric.WhichOneof("data")))
    for point in data.data_points:
        yield dict(attributes_of(point.attributes))


async def test_every_metric_is_listed_with_its_kind_and_unit(exported: list[tuple[str, WireMetric]]) -> None:
    found = {(metric.name, metric.unit, *kind_of(metric)) for _, metric in exported}
    listed = {(metric.name, metric.unit, metric.kind) for metric in semconv.METRICS}
    assert found - listed == set()


async def test_every_attribute_of_a_metric_is_listed_for_it(exported: list[tuple[str, WireMetric]]) -> None:
    unlisted = {
        (metric.name, key)
        for _, metric in exported
        for attributes in points_of(metric)
        for key in attributes
        if metric.name in METRICS and key not in METRICS[metric.name].attributes
    }
    assert unlisted == set()


async def test_no_attribute_of_a_metric_is_an_id_or_an_address(exported: list[tuple[str, WireMetric]]) -> None:
    suspicious = {
        (metric.name, key, value)
        for _, metric in exported
        for attributes in points_of(metric)
        for key, value in attributes.items()
        if _ID.search(str(value))
    }
    assert suspicious == set()


@pytest.mark.usefixtures("exported")
async def test_every_attribute_of_a_span_is_listed(shop: RunningShop) -> None:
    found = {key for span in shop.received.spans for key in span.attributes}
    assert found - set(semconv.ATTRIBUTES) == set()
    assert found >= {semconv.RPC_METHOD, semconv.ERROR_REASON, semconv.SERVER_ADDRESS}


async def test_every_service_with_a_sqlite_file_exports_how_full_its_volume_is(shop: RunningShop) -> None:
    def services() -> set[str]:
        return {service for service, metric in shop.received.metrics if metric.name == semconv.STORE_VOLUME_USAGE.name}

    assert await wait_until(lambda: services() == {"checkout", "payment", "shipping", "email"})
