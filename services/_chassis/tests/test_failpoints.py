import asyncio
import time

import pytest

from chassis.failpoints import FailpointReached, Failpoints


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
