import asyncio
from typing import Any, cast

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from opentelemetry.trace import StatusCode
from structlog.testing import capture_logs

from chassis import errors
from chassis.deadline import remaining_seconds
from chassis.telemetry import semconv
from shop import cart_pb2, cart_pb2_grpc
from shop_kit.carts import Carts, Handler, raising
from shop_kit.failing import error_of
from shop_kit.serving import Recorded, connect, health, serve


class CartLost(errors.NotFound):
    pass


async def failure_of(handle: Handler, recorded: Recorded | None = None) -> grpc.aio.AioRpcError:
    telemetry = recorded.telemetry if recorded else None
    async with connect(Carts(handle), telemetry=telemetry) as channel:
        return await error_of(cart_pb2_grpc.CartServiceStub(channel).GetCart(cart_pb2.GetCartRequest(user_id="u")))


@pytest.mark.parametrize(
    "kind", [kind for kind in errors.DomainError.__subclasses__() if kind.__module__ == errors.__name__]
)
async def test_each_kind_of_error_has_the_status_code_of_its_name(kind: type[errors.DomainError]) -> None:
    assert (await failure_of(raising(kind(message="x")))).code().name == kind.default_reason


@pytest.mark.parametrize(
    ("raised", "logged"), [(ValueError("the secret"), ["unexpected error"]), (errors.Internal("a peer's secret"), [])]
)
async def test_an_internal_error_is_hidden_from_the_caller_and_logged_unless_it_is_a_peers(
    raised: Exception, logged: list[str]
) -> None:
    with capture_logs() as logs:
        error = await failure_of(raising(raised))
    assert (error.code(), error.details()) == (grpc.StatusCode.INTERNAL, "internal error")
    assert [entry["event"] for entry in logs if entry["log_level"] == "error"] == logged


@pytest.mark.parametrize("raw", [b"\xff\xff\xff", b"\n\x02\xff\xfe"], ids=["no message", "no UTF-8"])
async def test_malformed_bytes_are_an_invalid_argument(raw: bytes) -> None:
    async with connect(Carts()) as channel:
        get_cart: Any = channel.unary_unary("/shop.CartService/GetCart")
        failure = await error_of(get_cart(raw))
    assert failure.code() is grpc.StatusCode.INVALID_ARGUMENT
    status = rpc_status.from_call(cast("grpc.Call", failure))  # from_call only reads what an AioRpcError also has
    assert status.details[0].Unpack(info := error_details_pb2.ErrorInfo())
    assert (info.reason, info.domain) == ("MALFORMED_MESSAGE", "shop")


async def test_a_call_that_is_half_closed_without_a_message_is_an_invalid_argument() -> None:
    async with connect(Carts()) as channel:
        get_cart: Any = channel.stream_unary("/shop.CartService/GetCart")
        failure = await error_of(get_cart(iter(())))
    assert failure.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert failure.details() == "the call ended without a request message"


async def test_a_probe_does_not_wait_behind_a_backlog_of_calls() -> None:
    backlog = 500
    alone = [("grpc.use_local_subchannel_pool", 1)]  # a separate connection, because each carries at most 100 calls
    async with (
        serve(Carts()) as address,
        grpc.aio.insecure_channel(address) as channel,
        grpc.aio.insecure_channel(address, alone) as prober,
    ):
        stub = cart_pb2_grpc.CartServiceStub(channel)
        await stub.GetCart(cart_pb2.GetCartRequest())  # opens the connection
        await prober.channel_ready()
        calls_in_flight = [asyncio.ensure_future(stub.GetCart(cart_pb2.GetCartRequest())) for _ in range(backlog)]
        await asyncio.sleep(0)
        assert await health(prober, "liveness") == "SERVING"
        answered = sum(call.done() for call in calls_in_flight)
        await asyncio.gather(*calls_in_flight)
    assert answered < backlog / 2  # usually up to 3; with one queue for all methods, nearly all of them


async def test_the_handler_sees_the_caller_s_deadline() -> None:
    seen: list[float | None] = []
    async with connect(Carts(lambda _: seen.append(remaining_seconds()))) as channel:
        stub = cart_pb2_grpc.CartServiceStub(channel)
        await stub.GetCart(cart_pb2.GetCartRequest(), timeout=30)
        await stub.GetCart(cart_pb2.GetCartRequest())
    assert seen[0] is not None
    assert 20 < seen[0] <= 31
    assert seen[1] is None


async def test_a_call_is_recorded_by_method_and_status_with_its_span(recorded: Recorded) -> None:
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
    ((attributes, series),) = recorded.telemetry.histogram(semconv.RPC_SERVER_DURATION).series.items()
    assert (dict(attributes)["rpc.response.status_code"], "error.type" in dict(attributes)) == ("NOT_FOUND", False)
    assert sum(series.counts) == 1
    assert [exemplar.span.span_id for exemplar in series.exemplars.values()] == [span.context.span_id]


@pytest.mark.parametrize(
    ("error", "error_type", "reason"),
    [(ValueError("a secret"), "INTERNAL", "ValueError"), (errors.Unavailable("a secret"), *["UNAVAILABLE"] * 2)],
)
async def test_a_failure_of_the_server_is_recorded_as_such_without_its_text(
    recorded: Recorded, error: Exception, error_type: str, reason: str
) -> None:
    await failure_of(raising(error), recorded)
    (span,) = recorded.spans()
    assert span.status.status_code is StatusCode.ERROR
    attributes = span.attributes or {}
    assert (attributes["error.type"], attributes["shop.error.reason"]) == (error_type, reason)
    assert "secret" not in span.to_json()
    [labels] = recorded.telemetry.histogram(semconv.RPC_SERVER_DURATION).series
    assert dict(labels)["error.type"] == error_type
