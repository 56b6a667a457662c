import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_status import rpc_status
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint
from opentelemetry.trace import StatusCode
from structlog.testing import capture_logs

from chassis import errors
from chassis.rpc import calls
from chassis.telemetry import semconv
from chassis.telemetry.instruments import Telemetry
from shop import cart_pb2, cart_pb2_grpc
from shop_kit.carts import REGISTER, Carts, Context, Handler
from shop_kit.serving import Recorded, connect, serve
from shop_kit.waiting import wait_until


class CartLost(errors.NotFound):
    pass


def raising(error: BaseException) -> Handler:
    async def fail(_context: Context) -> cart_pb2.Cart:
        raise error

    return fail


async def failure_of(handle: Handler, recorded: Recorded | None = None) -> grpc.aio.AioRpcError:
    telemetry = recorded.telemetry if recorded else None
    async with connect((REGISTER, Carts(handle)), telemetry=telemetry) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await cart_pb2_grpc.CartServiceStub(channel).GetCart(cart_pb2.GetCartRequest(user_id="u"))
    return failure.value


def untyped(channel: grpc.aio.Channel, method: str) -> Callable[[bytes], Awaitable[bytes]]:
    """A method of shop.CartService that sends any bytes."""
    call: Any = channel.unary_unary(f"/shop.CartService/{method}")
    return cast("Callable[[bytes], Awaitable[bytes]]", call)


def details_of(error: grpc.aio.AioRpcError) -> dict[str, Any]:
    found = {}
    status = rpc_status.from_call(cast("grpc.Call", error))  # an AioRpcError has all that is read
    for packed in status.details:
        for kind in (error_details_pb2.ErrorInfo, error_details_pb2.BadRequest, error_details_pb2.RetryInfo):
            message = kind()
            if packed.Unpack(message):
                found[kind.DESCRIPTOR.name] = message
    return found


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.NotFound("x"), grpc.StatusCode.NOT_FOUND),
        (errors.AlreadyExists("x"), grpc.StatusCode.ALREADY_EXISTS),
        (errors.FailedPrecondition("x"), grpc.StatusCode.FAILED_PRECONDITION),
        (errors.Aborted("x"), grpc.StatusCode.ABORTED),
        (errors.OutOfRange("x"), grpc.StatusCode.OUT_OF_RANGE),
        (errors.ResourceExhausted("x"), grpc.StatusCode.RESOURCE_EXHAUSTED),
        (errors.Unavailable("x"), grpc.StatusCode.UNAVAILABLE),
        (errors.DeadlineExceeded("x"), grpc.StatusCode.DEADLINE_EXCEEDED),
        (errors.Unimplemented("x"), grpc.StatusCode.UNIMPLEMENTED),
        (errors.InvalidArgument.field("user_id", "x"), grpc.StatusCode.INVALID_ARGUMENT),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, errors.DomainError) else "",
)
async def test_each_kind_of_error_has_its_status_code(error: errors.DomainError, code: grpc.StatusCode) -> None:
    assert (await failure_of(raising(error))).code() is code


async def test_an_error_carries_its_reason_and_metadata() -> None:
    details = details_of(await failure_of(raising(CartLost("lost", metadata={"order_id": "7"}))))
    assert details["ErrorInfo"] == error_details_pb2.ErrorInfo(
        reason="CART_LOST", domain="shop", metadata={"order_id": "7"}
    )


async def test_a_field_violation_names_the_field() -> None:
    details = details_of(await failure_of(raising(errors.InvalidArgument.field("item.quantity", "must be 1"))))
    violation = details["BadRequest"].field_violations[0]
    assert (violation.field, violation.description) == ("item.quantity", "must be 1")


async def test_an_error_carries_its_retry_delay() -> None:
    details = details_of(await failure_of(raising(errors.Unavailable("down", retry_after_seconds=1.5))))
    assert details["RetryInfo"].retry_delay.ToNanoseconds() == 1_500_000_000


async def test_an_unexpected_error_is_logged_and_hidden_from_the_caller() -> None:
    with capture_logs() as logs:
        error = await failure_of(raising(ValueError("the secret")))
    assert (error.code(), error.details()) == (grpc.StatusCode.INTERNAL, "internal error")
    assert [entry["event"] for entry in logs if entry["log_level"] == "error"] == ["unexpected error"]


async def test_the_text_of_a_peer_s_internal_error_is_hidden_from_the_caller() -> None:
    assert (await failure_of(raising(errors.Internal("their secret")))).details() == "internal error"


@pytest.mark.parametrize("raw", [b"\xff\xff\xff", b"\n\x02\xff\xfe"], ids=["no message", "no UTF-8"])
async def test_malformed_bytes_are_an_invalid_argument(raw: bytes) -> None:
    async with connect((REGISTER, Carts())) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await untyped(channel, "GetCart")(raw)
    assert failure.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert details_of(failure.value)["ErrorInfo"].reason == "MALFORMED_MESSAGE"


async def test_a_control_character_is_rejected_in_any_string() -> None:
    async with connect((REGISTER, Carts())) as channel:
        request = cart_pb2.AddItemRequest(user_id="u", item=cart_pb2.CartItem(product_id="a\x7f"))
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await cart_pb2_grpc.CartServiceStub(channel).AddItem(request)
    assert details_of(failure.value)["BadRequest"].field_violations[0].field == "item.product_id"


async def test_an_unknown_method_is_unimplemented() -> None:
    async with connect((REGISTER, Carts())) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await untyped(channel, "Steal")(b"")
    assert failure.value.code() is grpc.StatusCode.UNIMPLEMENTED


ACTIVE, LIMIT = "shop.server.active_requests", "shop.server.request_limit"
SHED = "shop.server.shed_requests"


def values_of(reader: InMemoryMetricReader) -> dict[str, float]:
    data = reader.get_metrics_data()
    assert data is not None
    return {
        metric.name: point.value
        for group in data.resource_metrics
        for scope in group.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
        if isinstance(point, NumberDataPoint)
    }


async def test_a_call_beyond_the_limit_is_shed_with_a_retry_delay() -> None:
    entered, release = asyncio.Event(), asyncio.Event()
    reader = InMemoryMetricReader()
    telemetry = Telemetry(meter=MeterProvider([reader]).get_meter("test"))

    async def wait(_context: Context) -> cart_pb2.Cart:
        entered.set()
        await release.wait()
        return cart_pb2.Cart()

    async with (
        serve((REGISTER, Carts(wait)), max_concurrent_rpcs=1, telemetry=telemetry) as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        stub = cart_pb2_grpc.CartServiceStub(channel)
        first = asyncio.ensure_future(stub.GetCart(cart_pb2.GetCartRequest()))
        await entered.wait()
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await stub.GetCart(cart_pb2.GetCartRequest())
        await wait_until(lambda: values_of(reader) == {ACTIVE: 1, LIMIT: 1, SHED: 1})
        release.set()
        await first
        await wait_until(lambda: values_of(reader) == {ACTIVE: 0, LIMIT: 1, SHED: 1})
    assert failure.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert details_of(failure.value)["RetryInfo"].retry_delay.ToMilliseconds() == 500


async def test_a_probe_does_not_wait_behind_a_backlog_of_calls() -> None:
    backlog = 500
    async with connect((REGISTER, Carts())) as channel:
        stub = cart_pb2_grpc.CartServiceStub(channel)
        health: Any = health_pb2_grpc.HealthStub(channel)
        await stub.GetCart(cart_pb2.GetCartRequest())  # opens the connection
        calls_in_flight = [asyncio.ensure_future(stub.GetCart(cart_pb2.GetCartRequest())) for _ in range(backlog)]
        await asyncio.sleep(0)
        await health.Check(health_pb2.HealthCheckRequest(service="liveness"))
        answered = sum(call.done() for call in calls_in_flight)
        await asyncio.gather(*calls_in_flight)
    assert answered < backlog / 2  # usually one or three; from one queue for all methods it would be nearly all


async def test_the_handler_sees_the_caller_s_deadline() -> None:
    seen: list[float | None] = []

    async def record_deadline(_context: Context) -> cart_pb2.Cart:
        seen.append(calls.remaining_seconds())
        return cart_pb2.Cart()

    async with connect((REGISTER, Carts(record_deadline))) as channel:
        stub = cart_pb2_grpc.CartServiceStub(channel)
        await stub.GetCart(cart_pb2.GetCartRequest(), timeout=30)
        await stub.GetCart(cart_pb2.GetCartRequest())
    assert seen[0] is not None
    assert 20 < seen[0] <= 31
    assert seen[1] is None


async def test_a_call_is_one_span_with_its_status(recorded: Recorded) -> None:
    await failure_of(raising(CartLost("lost")), recorded)
    (span,) = recorded.spans()
    assert span.name == "shop.CartService/GetCart"
    assert dict(span.attributes or {}) == {
        "rpc.system.name": "grpc",
        "rpc.method": "shop.CartService/GetCart",
        "rpc.response.status_code": "NOT_FOUND",
        "shop.error.reason": "CART_LOST",
    }
    assert span.status.status_code is StatusCode.UNSET


async def test_a_server_error_sets_the_span_status_without_the_error_text(recorded: Recorded) -> None:
    await failure_of(raising(ValueError("the secret")), recorded)
    (span,) = recorded.spans()
    assert span.status.status_code is StatusCode.ERROR
    attributes = span.attributes or {}
    assert (attributes["error.type"], attributes["shop.error.reason"]) == ("INTERNAL", "ValueError")
    assert "secret" not in span.to_json()


@pytest.mark.parametrize(
    ("error", "error_type"), [(CartLost("lost"), None), (errors.Unavailable("down"), "UNAVAILABLE")]
)
async def test_only_failures_of_the_server_have_an_error_type(
    recorded: Recorded, error: Exception, error_type: str | None
) -> None:
    await failure_of(raising(error), recorded)
    [attributes] = recorded.telemetry.histogram(semconv.RPC_SERVER_DURATION).series
    assert (recorded.spans()[0].attributes or {}).get("error.type") == error_type
    assert dict(attributes).get("error.type") == error_type


async def test_each_call_is_recorded_by_method_and_status(recorded: Recorded) -> None:
    await failure_of(raising(CartLost("lost")), recorded)
    ((attributes, series),) = recorded.telemetry.histogram(semconv.RPC_SERVER_DURATION).series.items()
    assert dict(attributes)["rpc.response.status_code"] == "NOT_FOUND"
    assert sum(series.counts) == 1
    assert [exemplar.span.span_id for exemplar in series.exemplars.values()] == [recorded.spans()[0].context.span_id]
