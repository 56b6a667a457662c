"""Faults come in their time, to the process they are meant for, and orders keep step with them."""

import asyncio
from collections import Counter

import pytest

from shop_cli.prove.harming import Harmer
from shop_cli.prove.pace import Pace
from shop_cli.prove.plan import Fault, Harm

LOOKAHEAD = 100


class Victim:
    """Remembers what was done to it."""

    def __init__(self) -> None:
        self.suffered: list[str] = []

    async def start(self) -> None:
        self.suffered.append("start")

    def kill(self) -> None:
        self.suffered.append("kill")

    def pause(self) -> None:
        self.suffered.append("pause")

    def resume(self) -> None:
        self.suffered.append("resume")

    async def wait(self) -> int:
        return -9

    async def wait_until_serving(self, timeout_seconds: float) -> float:
        self.suffered.append("serving")
        return 0.0


@pytest.fixture
def pace() -> Pace:
    return Pace(lambda _: None)


async def harm(pace: Pace, victims: dict[str, Victim], *faults: Fault) -> Counter[str]:
    done: Counter[str] = Counter()
    async with asyncio.timeout(10):
        await Harmer(victims, pace, done, 1).run(faults, orders=1_000)
    return done


async def test_a_killed_process_is_started_again_and_waited_for(pace: Pace) -> None:
    victim = Victim()
    assert await harm(pace, {"a": victim}, Fault(0, Harm.KILL, "a", 0.0)) == {"kill": 1}
    assert victim.suffered == ["kill", "start", "serving"]


async def test_a_paused_process_goes_on(pace: Pace) -> None:
    victim = Victim()
    assert await harm(pace, {"a": victim}, Fault(0, Harm.PAUSE, "a", 0.0)) == {"pause": 1}
    assert victim.suffered == ["pause", "resume", "serving"]


async def test_a_fault_waits_for_its_time(pace: Pace) -> None:
    victim = Victim()
    running = asyncio.create_task(harm(pace, {"a": victim}, Fault(2, Harm.KILL, "a", 0.0)))
    await pace.wait_for_turn(0)
    await pace.finish()
    assert victim.suffered == []
    await pace.finish()
    await running
    assert victim.suffered


async def test_orders_do_not_run_ahead_of_the_faults_meant_for_their_time(pace: Pace) -> None:
    running = asyncio.create_task(harm(pace, {"a": Victim()}, Fault(1, Harm.KILL, "a", 0.0)))
    await pace.wait_for_turn(LOOKAHEAD)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(pace.wait_for_turn(LOOKAHEAD + 1), 0.05)
    await pace.finish()
    await running
    await pace.wait_for_turn(999)
