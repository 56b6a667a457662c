"""The metrics that a running shop exports over OTLP, and their exemplars."""

from collections.abc import Iterator

import grpc
import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import HistogramDataPoint

from shop.cart_pb2 import GetCartRequest
from shop.cart_pb2_grpc import CartServiceStub
from shop_cli.local.otlp_receiver import attributes_of
from shop_kit.waiting import wait_until
from shop_lab.world.running_shop import RunningShop

PLACE_ORDER, CHARGE = "shop.CheckoutService/PlaceOrder", "shop.PaymentService/Charge"


def points(shop: RunningShop, service: str, name: str, method: str) -> Iterator[HistogramDataPoint]:
    for source, metric in shop.received.metrics:
        if (source, metric.name) == (service, name):
            for point in metric.histogram.data_points:
                if attributes_of(point.attributes)["rpc.method"] == method:
                    yield point


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
        lambda: any(points(shop, "checkout", "rpc.client.call.duration", CHARGE)),
    )


async def test_rejected_calls_are_counted_by_status_code(shop: RunningShop) -> None:
    with pytest.raises(grpc.aio.AioRpcError):
        await CartServiceStub(shop.channels["cart"]).GetCart(GetCartRequest())

    def codes() -> set[object]:
        found = points(shop, "cart", "rpc.server.call.duration", "shop.CartService/GetCart")
        return {attributes_of(point.attributes)["rpc.response.status_code"] for point in found}

    await wait_until(lambda: "INVALID_ARGUMENT" in codes())


async def test_every_service_exports_its_memory_usage(shop: RunningShop) -> None:
    def exporting() -> set[str]:
        return {service for service, metric in shop.received.metrics if metric.name == "process.memory.usage"}

    await wait_until(lambda: exporting() >= {process.name for process in shop.processes})
