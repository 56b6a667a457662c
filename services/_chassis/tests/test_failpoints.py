import asyncio

import pytest

from chassis.failpoints import FailpointReached, Failpoints


async def test_a_point_that_is_not_set_does_nothing() -> None:
    await Failpoints("a=kill").reach("b")


async def test_a_point_fails_as_often_as_it_is_told() -> None:
    points = Failpoints("a=error*2")
    for _ in range(2):
        with pytest.raises(FailpointReached, match="a"):
            await points.reach("a")
    await points.reach("a")


async def test_a_point_hangs() -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(Failpoints("a=hang").reach("a"), 0.05)


@pytest.mark.parametrize("text", ["a", "a=explode", "=kill", "a=error*x"])
def test_a_bad_specification_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a failpoint is"):
        Failpoints(text)
