"""Faults are injected in their turn, and orders do not run far ahead of them."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager

import pytest

from shop_kit.waiting import wait_until
from shop_lab.prove.fault_injector import FaultInjector
from shop_lab.prove.fault_plan import LOOKAHEAD, Fault, FaultKind
from shop_lab.world.progress_gate import ProgressGate


def kills(targets: Iterable[str], after_orders: int = 0) -> list[Fault]:
    return [Fault(after_orders, FaultKind.KILL, target, 0.0) for target in targets]


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
    async with asyncio.timeout(10):
        await running


async def starts(gate: ProgressGate, number: int) -> bool:
    """Return whether the order with this number may start."""
    try:
        await asyncio.wait_for(gate.wait_until_open(number), 0.05)
    except TimeoutError:
        return False
    return True


async def test_a_fault_is_injected_only_after_its_number_of_orders(gate: ProgressGate) -> None:
    async with injecting(gate, kills("a", after_orders=2), orders=1_000) as begun:
        await gate.wait_until_open(0)
        await gate.finish()
        assert begun == []
        await gate.finish()
        await wait_until(lambda: begun == ["a"])


async def test_no_fault_is_injected_into_a_run_that_has_failed(gate: ProgressGate) -> None:
    injected: list[Fault] = []

    async def record(fault: Fault) -> None:
        injected.append(fault)

    await FaultInjector(record, gate, lambda: bool(injected)).run(kills("abc"), orders=9)
    assert len(injected) < 3
    await gate.wait_until_open(8)


async def test_orders_wait_for_the_faults_planned_before_them(gate: ProgressGate) -> None:
    async with injecting(gate, kills("a", after_orders=1), orders=1_000):
        await gate.wait_until_open(LOOKAHEAD)
        assert not await starts(gate, LOOKAHEAD + 1)
        await gate.finish()
    await gate.wait_until_open(999)


async def test_the_orders_for_a_fault_wait_until_it_can_begin(gate: ProgressGate) -> None:
    faults = [fault for after, target in enumerate("abc") for fault in kills(target, after)]
    async with injecting(gate, faults, orders=9_000) as begun:
        await gate.finish()
        await gate.finish()
        await wait_until(lambda: begun == ["a", "b"])
        assert not await starts(gate, LOOKAHEAD + 1)


async def test_a_fault_has_orders_under_way_although_many_are_finished_already(gate: ProgressGate) -> None:
    finished = 2 * LOOKAHEAD
    for _ in range(finished):
        await gate.finish()
    async with injecting(gate, kills("a"), orders=finished + 4):
        await asyncio.wait_for(gate.wait_until_open(finished + 1), 5)
        assert not await starts(gate, finished + 2)
    await gate.wait_until_open(finished + 3)


async def test_faults_that_concern_the_same_process_follow_each_other(gate: ProgressGate) -> None:
    faults = [Fault(0, FaultKind.REFUSED_RELEASES, "payment-internal", 0.0), *kills(["shipping"])]
    async with injecting(gate, faults, orders=9) as begun:
        await gate.wait_until_open(8)
        await wait_until(lambda: bool(begun))
        assert begun == ["payment-internal"]
    assert begun == ["payment-internal", "shipping"]
