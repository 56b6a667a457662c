import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2

from chassis import errors
from chassis.rpc import server
from chassis.rpc.status import from_rpc_error
from shop import cart_pb2, cart_pb2_grpc
from shop_internal import ordered_cart_pb2, ordered_cart_pb2_grpc
from shop_kit.carts import Carts, HeldCarts
from shop_kit.failing import error_of, outcome
from shop_kit.fake_peers.reads import FakeOrderedCart
from shop_kit.http2 import PREFACE, Connection, call
from shop_kit.metrics import measured
from shop_kit.reflection import methods_at
from shop_kit.serving import health, running
from shop_kit.waiting import PATIENCE_SECONDS, wait_until

PUBLIC, INTERNAL = "shop.CartService", "shop.internal.OrderedCart"
GET_CART, REMOVE_ORDERED = cart_pb2.GetCartRequest(user_id="u"), ordered_cart_pb2.RemoveOrderedRequest()


class Store:
    broken = False

    async def ping(self) -> None:
        if self.broken:
            raise errors.Unavailable("the store is down")


@asynccontextmanager
async def connected(
    *, carts: Carts | None = None, **options: Any
) -> AsyncIterator[tuple[server.Service, grpc.aio.Channel, grpc.aio.Channel]]:
    """Run a service. Yield the service, a channel to its public port, and a channel to its internal port."""
    options = {"internal": [FakeOrderedCart()], "checks": [Store().ping], **options}
    async with (
        running(carts or Carts(), **options) as service,
        grpc.aio.insecure_channel(f"127.0.0.1:{service.port}") as public,
        grpc.aio.insecure_channel(f"127.0.0.1:{service.internal_port}") as internal,
    ):
        yield service, public, internal


async def test_a_port_serves_describes_and_reports_its_own_services_alone() -> None:
    async with connected() as (service, public, internal):
        serving = health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVING)
        for channel, port, own, other in (
            (public, service.port, PUBLIC, INTERNAL),
            (internal, service.internal_port, INTERNAL, PUBLIC),
        ):
            carts, ordered = cart_pb2_grpc.CartServiceStub(channel), ordered_cart_pb2_grpc.OrderedCartStub(channel)
            calls: dict[str, Any] = {PUBLIC: carts.GetCart(GET_CART), INTERNAL: ordered.RemoveOrdered(REMOVE_ORDERED)}
            assert {name: await outcome(call) for name, call in calls.items()} == {own: "OK", other: "UNIMPLEMENTED"}
            methods = await asyncio.to_thread(methods_at, f"127.0.0.1:{port}")
            assert {str(method.containing_service.full_name) for method in methods} == {own}
            healthy = ("", "liveness", own)
            assert [await health(channel, name) for name in (*healthy, other)] == [*["SERVING"] * 3, "NOT_FOUND"]
            stub: Any = health_pb2_grpc.HealthStub(channel)
            listed = (await stub.List(health_pb2.HealthListRequest())).statuses  # type: ignore[attr-defined]
            assert dict(listed) == dict.fromkeys(healthy, serving)


async def test_a_full_port_sheds_calls_and_the_other_one_serves_them() -> None:
    carts = HeldCarts()
    telemetry, metrics = measured()
    ports = [("shop.port.name", name) for name in ("public", "internal")]
    shed = [("shop.server.shed_requests", port, ("shop.server.shed.reason", "in_flight")) for port in ports]
    options = {"telemetry": telemetry, "max_concurrent_rpcs": 1, "grace_seconds": 0}
    async with connected(carts=carts, **options) as (_, public, internal):
        stub, ordered = cart_pb2_grpc.CartServiceStub(public), ordered_cart_pb2_grpc.OrderedCartStub(internal)
        hanging = stub.GetCart(GET_CART)
        await wait_until(lambda: carts.entered)
        refused = await error_of(stub.GetCart(GET_CART))
        assert refused.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert from_rpc_error(refused).retry_after_seconds == 0.5
        assert await outcome(ordered.RemoveOrdered(REMOVE_ORDERED)) == "OK"
        assert await health(internal, INTERNAL) == await health(public, PUBLIC) == "SERVING"
        counts = metrics()
        hanging.cancel()
        await wait_until(lambda: metrics()["shop.server.active_requests", ports[0]] == 0)
    assert [counts["shop.server.active_requests", port] for port in ports] == [1, 0]
    assert [counts["shop.server.request_limit", port] for port in ports] == [1, 1]
    assert [counts[series] for series in shed] == [1, 0]


async def test_on_the_internal_port_a_method_leaves_places_to_others() -> None:
    carts = HeldCarts()
    options: dict[str, Any] = {"internal": [carts, FakeOrderedCart()], "max_concurrent_rpcs": 3, "grace_seconds": 0}
    async with connected(**options) as (_, _, internal):
        stub, ordered = cart_pb2_grpc.CartServiceStub(internal), ordered_cart_pb2_grpc.OrderedCartStub(internal)
        hanging = stub.GetCart(GET_CART)
        await wait_until(lambda: carts.entered)
        assert await outcome(stub.GetCart(GET_CART)) == "RESOURCE_EXHAUSTED"
        assert await outcome(ordered.RemoveOrdered(REMOVE_ORDERED)) == "OK"
        hanging.cancel()


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
@pytest.mark.parametrize("symbol", ["shop.CartService", "shop.CartService.GetCart", "shop.CartItem.quantity"])
async def test_reflection_of_both_versions_describes_services_methods_and_fields(version: str, symbol: str) -> None:
    async with connected() as (_, public, _):
        reflect: Any = public.stream_stream(
            f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
            reflection_pb2.ServerReflectionRequest.SerializeToString,
            reflection_pb2.ServerReflectionResponse.FromString,
        )
        requests = [
            reflection_pb2.ServerReflectionRequest(file_containing_symbol=name) for name in (symbol, "shop.No.No")
        ]
        found, missing = [response async for response in reflect(requests)]
        files = [FileDescriptorProto.FromString(file) for file in found.file_descriptor_response.file_descriptor_proto]
        assert "shop/cart.proto" in {file.name for file in files}
        assert missing.error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]


async def test_readiness_follows_the_store_and_liveness_does_not() -> None:
    store = Store()
    store.broken = True
    async with connected(checks=[store.ping]) as (service, public, internal):
        checked = [(public, ""), (public, PUBLIC), (internal, INTERNAL), (public, "liveness")]
        unready, ready = [*["NOT_SERVING"] * 3, "SERVING"], ["SERVING"] * 4
        assert [await health(*name) for name in checked] == unready  # no check has succeeded yet
        store.broken = False
        await service._update_readiness()
        assert [await health(*name) for name in checked] == ready
        store.broken = True
        for _ in range(3):
            assert await health(public, PUBLIC) == "SERVING"  # one or two failed checks are tolerated
            await service._update_readiness()
        assert [await health(*name) for name in checked] == unready


async def test_a_check_with_a_defect_makes_a_service_not_ready_and_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    errors_of_checks = [None, *[ValueError("a defect")] * 3, None]

    async def check() -> None:
        if error := errors_of_checks.pop(0) if len(errors_of_checks) > 1 else None:
            raise error

    monkeypatch.setattr(server, "_READINESS_INTERVAL_SECONDS", 0.05)
    async with connected(checks=[check]) as (service, channel, _):
        stub: Any = health_pb2_grpc.HealthStub(channel)
        watch = stub.Watch(health_pb2.HealthCheckRequest(service=PUBLIC))
        seen = [(await watch.read()).status]
        watching = asyncio.create_task(service.watch_readiness())
        seen += [(await watch.read()).status for _ in range(2)]
        watching.cancel()
        watch.cancel()
    serving, not_serving = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
    assert seen == [serving, not_serving, serving]


async def test_a_stop_waits_for_calls_in_flight_and_not_for_streams_that_clients_hold_open() -> None:
    carts = HeldCarts()
    async with (
        asyncio.timeout(PATIENCE_SECONDS),  # this is shorter than the grace period
        connected(carts=carts, grace_seconds=3 * PATIENCE_SECONDS) as (service, channel, _),
    ):
        health: Any = health_pb2_grpc.HealthStub(channel)
        watch = health.Watch(health_pb2.HealthCheckRequest())
        await watch.read()
        never_sent: Any = channel.stream_unary("/shop.CartService/GetCart")()
        call = cart_pb2_grpc.CartServiceStub(channel).GetCart(GET_CART)
        await wait_until(lambda: carts.entered)
        drained = asyncio.ensure_future(service.drain())
        await asyncio.sleep(1)  # without calls in flight, the stop would have ended
        carts.released.set()
        assert (await call).user_id == "held"
        await drained
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        assert [await outcome(ending) for ending in (watch.read(), never_sent)] == ["UNAVAILABLE"] * 2


async def test_of_a_call_whose_method_name_is_not_utf_8_no_other_call_learns(caplog: pytest.LogCaptureFixture) -> None:
    async with connected() as (service, public, _):
        held: Any = health_pb2_grpc.HealthStub(public)
        watch = held.Watch(health_pb2.HealthCheckRequest())
        await watch.read()
        client = await Connection.open(service.port, PREFACE + call(path=b"/\xffsecret") + call(stream=3))
        await wait_until(lambda: client.ended == {1, 3})
        assert b"grpc-status\x0212" in client.received[1]  # UNIMPLEMENTED
        assert await outcome(cart_pb2_grpc.CartServiceStub(public).GetCart(GET_CART)) == "OK"
        assert not watch.done()
        watch.cancel()
        client.close()
        gc.collect()
    assert "secret" not in caplog.text


async def test_an_internal_port_in_use_fails_the_start_with_its_setting() -> None:
    async with connected() as (service, _, _):
        with pytest.raises(OSError, match=f"INTERNAL_PORT: can't listen on 127.0.0.1:{service.internal_port}"):
            async with connected(internal_port=service.internal_port):
                pass
