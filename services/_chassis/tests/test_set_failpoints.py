import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from structlog.testing import capture_logs

from chassis.failpoints import Failpoint, FailpointReached, Failpoints
from shop import cart_pb2, cart_pb2_grpc
from shop_internal import failpoints_pb2 as pb2
from shop_internal.failpoints_pb2_grpc import FailpointsStub
from shop_kit.carts import Carts
from shop_kit.failing import error_of, outcome
from shop_kit.fake_peers.reads import FakeOrderedCart
from shop_kit.metrics import measured
from shop_kit.serving import Recorded, running
from shop_kit.waiting import PATIENCE_SECONDS, wait_for_result, wait_until

GET_CART = "shop.CartService/GetCart"
UNKNOWN = ["", "explode", "error:OOPS", "error*x", "kill:1", "stall", "stall:x"]
OUT_OF_RANGE = ["stall:nan", "stall:1000", "burn:10", "leak:100", "hang%0", "hang%100"]


def wanted(action: str, seconds: float = 600, identifier: str = "7", name: str = GET_CART) -> pb2.SetFailpointRequest:
    failpoint = pb2.Failpoint(id=identifier, specification=f"{name}={action}", seconds_to_live=seconds)
    return pb2.SetFailpointRequest(failpoint=failpoint)


@asynccontextmanager
async def laboratory(**options: Any) -> AsyncIterator[tuple[Any, Any]]:
    """Serve carts with LAB=1. Yield stubs of the cart service and the failpoint service."""
    async with (
        running(Carts(), **{"lab": True, **options}) as service,
        grpc.aio.insecure_channel(f"127.0.0.1:{service.port}") as public,
        grpc.aio.insecure_channel(f"127.0.0.1:{service.internal_port}") as internal,
    ):
        yield cart_pb2_grpc.CartServiceStub(public), FailpointsStub(internal)


async def get_cart(carts: Any, timeout_seconds: float = PATIENCE_SECONDS) -> str:
    return await outcome(carts.GetCart(cart_pb2.GetCartRequest(user_id="u"), timeout=timeout_seconds))


def memory_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


async def listed(failpoints: Any) -> list[pb2.Failpoint]:
    return list((await failpoints.ListFailpoints(pb2.ListFailpointsRequest())).failpoints)


async def test_a_failpoint_fails_as_often_as_specified() -> None:
    failpoints = Failpoints("a=error*2,b=hang")
    for _ in range(2):
        with pytest.raises(FailpointReached, match="a"):
            await failpoints.reach("a")
    await failpoints.reach("a")


@pytest.mark.parametrize("text", ["a", "=kill", *(f"a={action}" for action in (*UNKNOWN, *OUT_OF_RANGE))])
def test_a_malformed_specification_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="a failpoint is"):
        Failpoints(text)


@pytest.mark.parametrize("code", ["UNAVAILABLE", "INTERNAL", "INVALID_ARGUMENT"])
async def test_an_error_lasts_until_it_is_ended(code: str) -> None:
    async with laboratory() as (carts, failpoints):
        await failpoints.SetFailpoint(wanted(f"error:{code}"))
        assert await get_cart(carts) == code
        for identifier in ("unknown", "7"):
            await failpoints.SetFailpoint(wanted("", 0, identifier))
        assert await get_cart(carts) == "OK"


@pytest.mark.parametrize("action", ["hang", "stall:600"])
async def test_a_call_that_waits_continues_when_the_failpoint_ends(action: str) -> None:
    async with laboratory() as (carts, failpoints):
        await failpoints.SetFailpoint(wanted(action))
        assert await get_cart(carts, 0.05) == "DEADLINE_EXCEEDED"
        waiting = asyncio.ensure_future(get_cart(carts))
        await asyncio.sleep(0.05)
        await failpoints.SetFailpoint(wanted("", 0))
        assert await waiting == "OK"


async def test_a_failpoint_ends_by_itself_unless_another_one_has_replaced_it() -> None:
    async with laboratory() as (carts, failpoints):
        for seconds in (0.05, 600):
            await failpoints.SetFailpoint(wanted("error:UNAVAILABLE", seconds))
        await asyncio.sleep(0.1)
        (found,) = await listed(failpoints)
        assert 0 < found.seconds_to_live < 600
        found.seconds_to_live = 600
        assert found == wanted("error:UNAVAILABLE").failpoint
        await failpoints.SetFailpoint(wanted("error:UNAVAILABLE", 0.05))
        await wait_for_result(lambda: get_cart(carts), lambda code: code == "OK")
        assert not await listed(failpoints)


async def test_two_failpoints_of_one_method_both_act() -> None:
    async with laboratory() as (carts, failpoints):
        await failpoints.SetFailpoint(wanted("stall:0.1"))
        await failpoints.SetFailpoint(wanted("error:UNAVAILABLE", identifier="8"))
        started = time.monotonic()
        assert await get_cart(carts) == "UNAVAILABLE"
        assert time.monotonic() - started >= 0.1
        await failpoints.SetFailpoint(wanted("", 0, "8"))
        assert await get_cart(carts) == "OK"


async def test_time_of_the_processor_is_burnt() -> None:
    async with laboratory() as (carts, failpoints):
        await failpoints.SetFailpoint(wanted("burn:0.3"))
        before = time.thread_time()
        assert await get_cart(carts) == "OK"
        assert time.thread_time() - before >= 0.3


async def test_leaked_memory_is_resident_until_the_failpoint_ends() -> None:
    async with laboratory() as (carts, failpoints):
        await failpoints.SetFailpoint(wanted("leak:64"))
        before = memory_bytes()
        for _ in range(2):
            await get_cart(carts)
        assert memory_bytes() - before > 100 * 2**20
        await failpoints.SetFailpoint(wanted("", 0))
        await wait_until(lambda: memory_bytes() - before < 50 * 2**20)


@pytest.mark.parametrize(("percent", "failures"), [("%1", 10), ("%33", 330), ("%50", 500), ("", 1000)])
async def test_a_share_of_the_calls_is_affected_and_always_the_same_ones(percent: str, failures: int) -> None:
    async def failing() -> list[int]:
        failpoint, found = Failpoint(f"a=error{percent}"), []
        for call in range(1000):
            try:
                await failpoint.reach()
            except FailpointReached:
                found.append(call)
        return found

    first = await failing()
    assert first == await failing()
    assert abs(len(first) - failures) <= 2
    assert len({call % 7 for call in first}) == 7  # a repeating pattern of calls is hit at every place


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"identifier": ""}, "id: must not be empty"),
        ({"identifier": "x" * 65}, "id: must have at most 64 characters"),
        ({"name": "shop.CartService/Get"}, "specification: this process has no such method"),
        ({"seconds": -1}, "seconds_to_live: must lie between 0 and 3600"),
        ({"seconds": 3601}, "seconds_to_live: must lie between 0 and 3600"),
        ({"seconds": float("nan")}, "seconds_to_live: must lie between 0 and 3600"),
        ({"action": "explode"}, "specification: a failpoint is name=kill|hang|error|error:CODE|"),
    ],
)
async def test_what_cannot_act_is_refused_in_one_line(changes: dict[str, Any], problem: str) -> None:
    async with laboratory() as (_, failpoints):
        refused = await error_of(failpoints.SetFailpoint(wanted(**{"action": "hang", **changes})))
        assert refused.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert (refused.details() or "").startswith(f"failpoint.{problem}")
        assert not await listed(failpoints)


async def test_without_a_laboratory_there_is_no_such_service() -> None:
    async with laboratory(lab=False, internal=[FakeOrderedCart()]) as (_, failpoints):
        assert await outcome(failpoints.SetFailpoint(wanted("error:INTERNAL"))) == "UNIMPLEMENTED"


async def test_nothing_that_is_recorded_shows_who_did_it(recorded: Recorded) -> None:
    telemetry, read = measured()
    both = type(telemetry)(tracer=recorded.telemetry.tracer, meter=telemetry.meter)
    with capture_logs() as logs:
        async with laboratory(telemetry=both) as (carts, failpoints):
            for code in ("INTERNAL", "UNAVAILABLE"):
                await failpoints.SetFailpoint(wanted(f"error:{code}"))
                assert await get_cart(carts) == code
            await listed(failpoints)
            exported = [*map(str, read()), *(span.to_json() for span in recorded.spans()), json.dumps(logs)]
    assert sum(GET_CART in each for each in exported) >= 2
    assert [each for each in exported if "ailpoint" in each] == []
