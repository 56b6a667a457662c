import asyncio
import time

import grpc
import pytest

from chassis.failpoints import FailpointReached, Failpoints
from shop import cart_pb2, cart_pb2_grpc
from shop_kit.carts import REGISTER, Carts
from shop_kit.serving import serve


async def test_a_failpoint_that_is_not_enabled_does_nothing() -> None:
    await Failpoints("a=kill").reach("b")


async def test_a_failpoint_fails_as_often_as_specified() -> None:
    failpoints = Failpoints("a=error*2")
    for _ in range(2):
        with pytest.raises(FailpointReached, match="a"):
            await failpoints.reach("a")
    await failpoints.reach("a")


async def test_a_failpoint_hangs() -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(Failpoints("a=hang").reach("a"), 0.05)


async def test_a_failpoint_stalls_for_its_seconds_and_then_continues() -> None:
    failpoints = Failpoints("a=stall:0.05*1")
    started = time.monotonic()
    await failpoints.reach("a")
    assert time.monotonic() - started >= 0.05
    await asyncio.wait_for(failpoints.reach("a"), 1)


@pytest.mark.parametrize("text", ["a", "a=explode", "=kill", "a=error*x", "a=stall", "a=stall:x", "a=kill:1"])
def test_a_malformed_specification_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="a failpoint is"):
        Failpoints(text)


async def test_the_name_of_a_method_is_a_failpoint_before_its_handler() -> None:
    async with (
        serve((REGISTER, Carts()), failpoints="shop.CartService/GetCart=error*1") as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        carts = cart_pb2_grpc.CartServiceStub(channel)
        await carts.EmptyCart(cart_pb2.EmptyCartRequest(user_id="u"))
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await carts.GetCart(cart_pb2.GetCartRequest(user_id="u"))
        assert failure.value.code() is grpc.StatusCode.INTERNAL
        assert (await carts.GetCart(cart_pb2.GetCartRequest(user_id="u"))).user_id == "u"
