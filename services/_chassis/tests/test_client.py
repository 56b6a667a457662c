import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack, nullcontext
from typing import Any, get_args

import grpc
import pytest

from chassis import errors
from chassis.deadline import deadline
from chassis.rpc import client
from chassis.settings import Balancing
from chassis.telemetry import semconv
from shop import cart_pb2, cart_pb2_grpc
from shop_kit.carts import Carts, Context, raising
from shop_kit.serving import Recorded, health, serve
from shop_kit.tcp_proxy import tcp_proxy
from shop_kit.waiting import wait_until

MALFORMED_REASONS = ["CARD_4929530463957262", "CARD_4929_5304_6395", "R" * 64, "card lost", "NO\n"]


class CartLost(errors.NotFound):
    pass


def stub(address: str, **options: Any) -> Any:
    return cart_pb2_grpc.CartServiceStub(client.channel(address, "shop.CartService", timeout_seconds=60, **options))


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (CartLost("lost", metadata={"a": "b"}, retry_after_seconds=2), errors.NotFound),
        (errors.InvalidArgument.field("user_id", "must not be empty"), errors.InvalidArgument),
    ],
)
async def test_an_error_of_a_peer_is_raised_as_the_same_kind(
    error: errors.DomainError, kind: type[errors.DomainError]
) -> None:
    async with serve(Carts(raising(error))) as address:
        with pytest.raises(kind) as failure:
            await stub(address).GetCart(cart_pb2.GetCartRequest())
    assert vars(failure.value) == vars(error)


async def test_channels_to_the_same_address_share_no_connection() -> None:
    callers: list[str] = []
    async with serve(Carts(lambda context: callers.append(context.peer()))) as address:
        for carts in [stub(address) for _ in range(3)]:
            await carts.GetCart(cart_pb2.GetCartRequest())
    assert len(set(callers)) == 3


async def test_an_unreachable_peer_is_unavailable_and_a_call_to_a_hanging_one_ends_at_its_deadline() -> None:
    with pytest.raises(errors.Unavailable):
        await stub("127.0.0.1:1").GetCart(cart_pb2.GetCartRequest())
    async with serve(Carts(), failpoints="shop.CartService/GetCart=hang") as address:
        with pytest.raises(errors.DeadlineExceeded):
            await stub(address).GetCart(cart_pb2.GetCartRequest(), timeout=0.2)


async def test_an_outgoing_call_never_outlives_the_call_being_served() -> None:
    seen: list[float] = []
    async with serve(Carts(lambda context: seen.append(context.time_remaining()))) as address:
        deadline.set(asyncio.get_running_loop().time() + 3)
        await stub(address).GetCart(cart_pb2.GetCartRequest())
        deadline.set(asyncio.get_running_loop().time() - 1)
        with pytest.raises(errors.DeadlineExceeded, match="no time left"):
            await stub(address).GetCart(cart_pb2.GetCartRequest())
    assert [seconds <= 3.1 for seconds in seen] == [True]


@pytest.mark.parametrize(
    ("balancing", "retryable", "attempts"),
    [("clients", ("GetCart",), 3), ("clients", (), 1), ("mesh", ("GetCart",), 1)],
)
async def test_only_retryable_methods_are_retried_which_is_counted_where_retries_arrive(
    recorded: Recorded, balancing: Balancing, retryable: tuple[str, ...], attempts: int
) -> None:
    codes = [grpc.StatusCode.CANCELLED, grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE][-attempts:]
    failing = Carts(lambda context: context.abort(codes.pop(0), "down"))
    async with serve(failing, telemetry=recorded.telemetry) as address:
        with pytest.raises(errors.Unavailable):
            await stub(address, retryable=retryable, balancing=balancing).GetCart(cart_pb2.GetCartRequest())
    assert len(recorded.spans()) == attempts
    counted = recorded.telemetry.counter(semconv.RETRIED_REQUESTS).values
    assert counted == ({(("rpc.method", "shop.CartService/GetCart"),): 2} if attempts == 3 else {})


@pytest.mark.parametrize(
    ("sent", "raised", "recorded_as"),
    [
        ("CART_FULL", "CART_FULL", "CART_FULL"),
        ("CARD_VISA", "CARD_VISA", "NOT_FOUND"),
        *((sent, "PEER_BROKEN", "PEER_BROKEN") for sent in MALFORMED_REASONS),
    ],
)
async def test_a_failed_call_is_recorded_with_its_status_and_a_reason_that_is_known(
    recorded: Recorded, sent: str, raised: str, recorded_as: str
) -> None:
    async with serve(Carts(raising(CartLost("lost", reason=sent)))) as address:
        with pytest.raises(errors.NotFound) as failure:
            await stub(address, telemetry=recorded.telemetry).GetCart(cart_pb2.GetCartRequest())
    assert failure.value.reason == raised
    [attributes] = recorded.telemetry.histogram(semconv.RPC_CLIENT_DURATION).series
    assert dict(attributes) == {
        "rpc.system.name": "grpc",
        "rpc.method": "shop.CartService/GetCart",
        "rpc.response.status_code": "NOT_FOUND",
        "server.address": "127.0.0.1",
        "error.type": "NOT_FOUND",
    }
    [span] = recorded.spans()
    assert (span.attributes or {}).items() >= {
        "error.type": "NOT_FOUND",
        "rpc.response.status_code": "NOT_FOUND",
        "server.address": "127.0.0.1",
        "server.port": int(address.rpartition(":")[2]),
        "shop.error.reason": recorded_as,
    }.items()


async def test_a_response_with_an_invalid_part_is_an_error_that_names_it(
    recorded: Recorded, capsys: pytest.CaptureFixture[str]
) -> None:
    def check(request: Any, cart: Any, trailers: Any) -> Iterator[tuple[str, bool]]:
        yield "etag", trailers.get("etag") is None
        yield "user_id", cart.user_id == request.user_id

    method, telemetry = "shop.CartService/GetCart", recorded.telemetry
    async with serve(Carts(lambda _: cart_pb2.Cart())) as address:
        carts = stub(address, checks={method: check}, telemetry=telemetry)
        await carts.GetCart(cart_pb2.GetCartRequest())
        with pytest.raises(errors.PeerBroken, match=f"{method} returned an invalid user_id"):
            await carts.GetCart(cart_pb2.GetCartRequest(user_id="ann"))
    assert "user_id" in capsys.readouterr().out
    series = [dict(attributes) for attributes in telemetry.histogram(semconv.RPC_CLIENT_DURATION).series]
    assert [attributes.get("error.type") for attributes in series] == [None, "PEER_BROKEN"]
    assert (recorded.spans()[-1].attributes or {})["shop.error.reason"] == "PEER_BROKEN"


async def test_cancelling_the_caller_cancels_the_call() -> None:
    entered, cancelled = asyncio.Event(), asyncio.Event()

    async def hang(_context: Context) -> cart_pb2.Cart:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return cart_pb2.Cart()

    async with serve(Carts(hang)) as address:
        task = asyncio.ensure_future(stub(address).GetCart(cart_pb2.GetCartRequest()))
        await entered.wait()
        task.cancel()
        assert await wait_until(cancelled.is_set)


async def test_calls_are_balanced_over_all_backends_and_none_fails_while_one_of_them_drains() -> None:
    counts: Counter[str] = Counter()
    async with (
        serve(Carts(lambda _: counts.update("a"))) as first,
        serve(Carts(lambda _: counts.update("b"))) as second,
        AsyncExitStack() as stack,
    ):
        # Drain long enough for the client to receive NOT_SERVING, even on a busy machine.
        third = await stack.enter_async_context(serve(Carts(lambda _: counts.update("c")), drain_seconds=3))
        carts = stub(f"ipv4:///{first},{second},{third}")
        while len(counts) < 3:
            await carts.GetCart(cart_pb2.GetCartRequest())
        counts.clear()
        for _ in range(30):
            await carts.GetCart(cart_pb2.GetCartRequest())
        # A change of connections begins a new round, so the counts need not be equal.
        assert min(counts[name] for name in "abc") > 5
        drained = asyncio.create_task(stack.aclose())
        async with grpc.aio.insecure_channel(third) as draining:
            while (state := await health(draining, "shop.CartService")) == "SERVING":
                await carts.GetCart(cart_pb2.GetCartRequest())
            assert state == "NOT_SERVING"
            await cart_pb2_grpc.CartServiceStub(draining).GetCart(cart_pb2.GetCartRequest())
        while not drained.done():
            await carts.GetCart(cart_pb2.GetCartRequest())
        counts.clear()
        for _ in range(30):
            await carts.GetCart(cart_pb2.GetCartRequest())
    assert min(counts["a"], counts["b"]) > 10
    assert "c" not in counts


async def test_behind_a_mesh_a_backend_that_is_not_healthy_fails_no_call() -> None:
    async with serve(Carts()) as address:
        unhealthy = "shop.AdService"  # the backend does not serve this service
        for balancing in get_args(Balancing):
            channel = client.channel(address, unhealthy, timeout_seconds=60, balancing=balancing)
            carts = cart_pb2_grpc.CartServiceStub(channel)
            with pytest.raises(errors.Unavailable) if balancing == "clients" else nullcontext():
                await carts.GetCart(cart_pb2.GetCartRequest())
            await channel.close()


async def test_a_channel_without_calls_closes_its_connection_until_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    options = {**dict(client.OPTIONS), "grpc.client_idle_timeout_ms": 1_000}
    monkeypatch.setattr(client, "OPTIONS", tuple(options.items()))
    async with serve(Carts()) as address:
        channel: Any = client.channel(address, "shop.CartService", timeout_seconds=60)
        carts = cart_pb2_grpc.CartServiceStub(channel)
        assert channel.get_state() is not grpc.ChannelConnectivity.READY
        await carts.GetCart(cart_pb2.GetCartRequest())
        assert channel.get_state() is grpc.ChannelConnectivity.READY
        assert await wait_until(lambda: channel.get_state() is grpc.ChannelConnectivity.IDLE)
        await carts.GetCart(cart_pb2.GetCartRequest())
        assert channel.get_state() is grpc.ChannelConnectivity.READY
        await channel.close()


async def test_a_call_to_a_peer_that_vanishes_ends_before_its_deadline() -> None:
    async with serve(Carts()) as address, tcp_proxy(address) as proxy:
        carts = stub(proxy.address)
        await carts.GetCart(cart_pb2.GetCartRequest())
        proxy.set_mode("lose")
        with pytest.raises(errors.Unavailable):
            await carts.GetCart(cart_pb2.GetCartRequest(), timeout=50)


async def test_keepalive_pings_of_an_idle_client_do_not_end_its_connection() -> None:
    # The client pings every second. A server that considers this abuse closes the connection at the third ping.
    async with serve(Carts()) as address, tcp_proxy(address) as proxy:
        carts = stub(proxy.address)
        await carts.GetCart(cart_pb2.GetCartRequest())
        await asyncio.sleep(5)
        await carts.GetCart(cart_pb2.GetCartRequest())
        assert proxy.connections == 1
