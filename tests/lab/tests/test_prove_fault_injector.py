"""Faults are injected in their turn, and orders do not run far ahead of them."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from shop_kit.waiting import wait_until
from shop_lab.prove.fault_injector import FaultInjector
from shop_lab.prove.fault_plan import LOOKAHEAD, Fault, FaultKind
from shop_lab.world.progress_gate import ProgressGate


@pytest.fixture
def gate() -> ProgressGate:
    return ProgressGate(lambda _: None)


@asynccontextmanager
async def injecting(gate: ProgressGate, faults: Sequence[Fault], orders: int) -> AsyncIterator[list[str]]:
    """Run a plan whose faults end with the context; yield the targets of those that have begun."""
    begun: list[str] = []
    ending = asyncio.Event()

    async def inject(fault: Fault) -> None:
        begun.append(fault.target)
        await ending.wait()

    running = asyncio.create_task(FaultInjector(inject, gate).run(faults, orders))
    yield begun
    ending.set()
    await running


async def starts(gate: ProgressGate, number: int) -> bool:
    """Return whether the order with this number may start."""
    try:
        await asyncio.wait_for(gate.wait_until_open(number), 0.05)
    except TimeoutError:
        return False
    return True


async def test_orders_and_the_faults_between_them_wait_for_each_other(gate: ProgressGate) -> None:
    faults = [Fault(after, FaultKind.KILL, target, 0.0) for after, target in enumerate("abc", start=1)]
    async with injecting(gate, faults, orders=9_000) as begun:
        await gate.wait_until_open(LOOKAHEAD)
        assert (begun, await starts(gate, LOOKAHEAD + 1)) == ([], False)
        for _ in faults:
            await gate.finish()
        await wait_until(lambda: begun == ["a", "b"])  # two at a time
        assert not await starts(gate, LOOKAHEAD + 2)
    await gate.wait_until_open(8_999)


async def test_a_fault_has_orders_under_way_although_many_are_finished_already(gate: ProgressGate) -> None:
    finished = 2 * LOOKAHEAD
    for _ in range(finished):
        await gate.finish()
    async with injecting(gate, [Fault(0, FaultKind.KILL, "a", 0.0)], orders=finished + 4):
        await gate.wait_until_open(finished + 1)
        assert not await starts(gate, finished + 2)
    await gate.wait_until_open(finished + 3)


async def test_faults_that_concern_the_same_process_follow_each_other(gate: ProgressGate) -> None:
    releases = Fault(0, FaultKind.REFUSED_RELEASES, "payment-internal", 0.0)
    faults = [releases, Fault(0, FaultKind.KILL, "shipping", 0.0)]
    async with injecting(gate, faults, orders=9) as begun:
        await gate.wait_until_open(8)
        await wait_until(lambda: bool(begun))
        assert begun == ["payment-internal"]
    assert begun == ["payment-internal", "shipping"]
