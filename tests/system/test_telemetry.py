"""The metrics that a running shop exports over OTLP, and their exemplars."""

from opentelemetry.proto.metrics.v1.metrics_pb2 import HistogramDataPoint

from shop_cli.local.otlp_receiver import attributes_of
from shop_kit.waiting import wait_until
from shop_lab.world.running_shop import RunningShop

PLACE_ORDER = "shop.CheckoutService/PlaceOrder"


async def test_every_service_with_a_sqlite_file_exports_how_full_its_volume_is(shop: RunningShop) -> None:
    def services() -> set[str]:
        return {service for service, metric in shop.received.metrics if metric.name == "shop.store.volume.usage"}

    assert await wait_until(lambda: services() == {"checkout", "payment", "shipping", "email"})


async def test_the_duration_of_orders_has_the_outcome_and_exemplars_that_name_their_traces(shop: RunningShop) -> None:
    await shop.order()

    def placed() -> list[HistogramDataPoint]:
        expected = {"rpc.system.name": "grpc", "rpc.method": PLACE_ORDER, "rpc.response.status_code": "OK"}
        return [
            point
            for service, metric in shop.received.metrics
            if (service, metric.name) == ("checkout", "rpc.server.call.duration")
            for point in metric.histogram.data_points
            if attributes_of(point.attributes) == expected and point.count
        ]

    def exemplars() -> set[str]:
        return {exemplar.trace_id.hex() for point in placed() for exemplar in point.exemplars}

    def traces() -> set[str]:
        return {span.trace_id for span in shop.received.spans if span.name == PLACE_ORDER}

    assert await wait_until(exemplars)
    assert await wait_until(lambda: exemplars() <= traces())
