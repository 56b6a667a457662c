"""Whatever a running shop exports is listed in `chassis.telemetry.semconv`, with values that are bounded."""

import re
from collections.abc import Iterator

import grpc
import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric as WireMetric

from chassis.telemetry import semconv
from chassis.telemetry.semconv import Kind
from shop.cart_pb2 import GetCartRequest
from shop.cart_pb2_grpc import CartServiceStub
from shop_cli.local.otlp_receiver import attributes_of
from shop_kit.running_shop import RunningShop
from shop_kit.waiting import wait_until

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
WITH_A_FILE = {"checkout", "payment", "shipping", "email", "employee-api"}
# UUIDs, numbers of orders and cards, addresses of e-mail.
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-|[0-9]{6,}|[0-9a-f]{16,}|@")


def attributes_of_spans(shop: RunningShop) -> set[str]:
    return {key for span in shop.received.spans for key in span.attributes}


def kind_of(metric: WireMetric) -> Kind:
    if metric.HasField("histogram"):
        return "histogram"
    if metric.HasField("gauge"):
        return "gauge"
    return "counter" if metric.sum.is_monotonic else "up_down_counter"


def attributes_of_points(metric: WireMetric) -> Iterator[tuple[str, object]]:
    for point in getattr(metric, str(metric.WhichOneof("data"))).data_points:
        yield from attributes_of(point.attributes).items()


async def test_what_is_exported_is_listed_and_no_value_of_a_metric_is_an_id_or_an_address(shop: RunningShop) -> None:
    await shop.order()
    with pytest.raises(grpc.aio.AioRpcError):
        await CartServiceStub(shop.channels["cart"]).GetCart(GetCartRequest())
    expected = {(process.name, metric.name) for process in shop.processes for metric in OF_EVERY_PROCESS}
    expected |= {(name, semconv.STORE_VOLUME_USAGE.name) for name in WITH_A_FILE}
    # Of a failed call and of one between services, whose processes export at different times.
    attributes = {semconv.RPC_METHOD, semconv.ERROR_REASON, semconv.SERVER_ADDRESS}
    await wait_until(lambda: {(service, metric.name) for service, metric in shop.received.metrics} >= expected)
    await wait_until(lambda: attributes_of_spans(shop) >= attributes)

    assert attributes_of_spans(shop) - set(semconv.ATTRIBUTES) == set()
    listed = {(metric.name, metric.unit, metric.kind): metric.attributes for metric in semconv.METRICS}
    found = [(metric, (metric.name, metric.unit, kind_of(metric))) for _, metric in shop.received.metrics]
    assert {key for _, key in found} - set(listed) == set()
    points = {(key, *pair) for metric, key in found for pair in attributes_of_points(metric)}
    assert {point for point in points if point[1] not in listed[point[0]] or _ID.search(str(point[2]))} == set()
