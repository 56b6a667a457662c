"""Faults are injected in their turn, and orders do not run far ahead of them."""

import asyncio
from collections import Counter

import pytest
from typing_extensions import override

from shop_kit.waiting import wait_until
from shop_lab.prove.fault_injector import FaultInjector
from shop_lab.prove.fault_plan import LOOKAHEAD, Fault, FaultKind
from shop_lab.prove.shop_faults import ShopFaults
from shop_lab.world.controllable_process import ControllableProcess
from shop_lab.world.fake_peers.refusing import RefusingPeers
from shop_lab.world.progress_gate import ProgressGate
from shop_lab.world.smtp_relay import Inbox

NO_PEERS = RefusingPeers()
INBOX = Inbox()


class RecordingProcess(ControllableProcess):
    def __init__(self) -> None:
        self.calls: list[str] = []

    @override
    async def start(self) -> None:
        self.calls.append("start")

    @override
    def kill(self) -> None:
        self.calls.append("kill")

    @override
    def pause(self) -> None:
        self.calls.append("pause")

    @override
    def resume(self) -> None:
        self.calls.append("resume")

    @override
    async def wait(self) -> int:
        return -9

    @override
    async def wait_until_serving(self, timeout_seconds: float = 30.0) -> float:
        self.calls.append("serving")
        return 0.0


@pytest.fixture
def gate() -> ProgressGate:
    return ProgressGate(lambda _: None)


async def inject(gate: ProgressGate, process: ControllableProcess, *faults: Fault) -> Counter[str]:
    """Inject faults into a process with the name `a`; return their counts by kind."""
    faults_of_a = ShopFaults({"a": process}, {}, NO_PEERS, INBOX, gate, ready_seconds=1)
    injector = FaultInjector(faults_of_a.inject, gate)
    async with asyncio.timeout(10):
        await injector.run(faults, orders=1_000)
    return injector.counts


async def test_a_killed_process_is_restarted_and_awaited(gate: ProgressGate) -> None:
    process = RecordingProcess()
    assert await inject(gate, process, Fault(0, FaultKind.KILL, "a", 0.0)) == {"kill": 1}
    assert process.calls == ["kill", "start", "serving"]


async def test_a_paused_process_is_resumed_and_awaited(gate: ProgressGate) -> None:
    process = RecordingProcess()
    assert await inject(gate, process, Fault(0, FaultKind.PAUSE, "a", 0.0)) == {"pause": 1}
    assert process.calls == ["pause", "resume", "serving"]


async def test_a_fault_is_injected_only_after_its_number_of_orders(gate: ProgressGate) -> None:
    process = RecordingProcess()
    running = asyncio.create_task(inject(gate, process, Fault(2, FaultKind.KILL, "a", 0.0)))
    await gate.wait_until_open(0)
    await gate.finish()
    assert process.calls == []
    await gate.finish()
    await running
    assert process.calls


async def test_no_fault_is_injected_into_a_run_that_has_failed(gate: ProgressGate) -> None:
    injected: list[Fault] = []

    async def record(fault: Fault) -> None:
        injected.append(fault)

    faults = [Fault(0, FaultKind.KILL, name, 0.0) for name in "abc"]
    await FaultInjector(record, gate, lambda: bool(injected)).run(faults, orders=9)
    assert len(injected) < len(faults)
    await gate.wait_until_open(8)


async def test_orders_wait_for_the_faults_planned_before_them(gate: ProgressGate) -> None:
    running = asyncio.create_task(inject(gate, RecordingProcess(), Fault(1, FaultKind.KILL, "a", 0.0)))
    await gate.wait_until_open(LOOKAHEAD)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(gate.wait_until_open(LOOKAHEAD + 1), 0.05)
    await gate.finish()
    await running
    await gate.wait_until_open(999)


async def test_the_orders_for_a_fault_wait_until_it_can_begin(gate: ProgressGate) -> None:
    begun: list[str] = []
    ending = asyncio.Event()

    async def inject_until_ended(fault: Fault) -> None:
        begun.append(fault.target)
        await ending.wait()

    faults = [Fault(after, FaultKind.KILL, name, 0.0) for after, name in enumerate("abc")]
    running = asyncio.create_task(FaultInjector(inject_until_ended, gate).run(faults, orders=9_000))
    await gate.finish()
    await gate.finish()
    await wait_until(lambda: begun == ["a", "b"])
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(gate.wait_until_open(LOOKAHEAD + 1), 0.05)
    ending.set()
    await running


async def test_a_fault_has_orders_under_way_although_many_are_finished_already(gate: ProgressGate) -> None:
    finished = 2 * LOOKAHEAD
    for _ in range(finished):
        await gate.finish()
    ending = asyncio.Event()

    async def inject_until_ended(_: Fault) -> None:
        await ending.wait()

    faults = [Fault(0, FaultKind.KILL, "a", 0.0)]
    running = asyncio.create_task(FaultInjector(inject_until_ended, gate).run(faults, orders=finished + 4))
    await asyncio.wait_for(gate.wait_until_open(finished + 1), 5)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(gate.wait_until_open(finished + 2), 0.05)
    ending.set()
    await running
    await gate.wait_until_open(finished + 3)


async def test_faults_that_concern_the_same_process_follow_each_other(gate: ProgressGate) -> None:
    begun: list[str] = []
    ending = asyncio.Event()

    async def inject_until_ended(fault: Fault) -> None:
        begun.append(fault.target)
        await ending.wait()

    faults = [Fault(0, FaultKind.REFUSED_RELEASES, "payment-internal", 0.0), Fault(0, FaultKind.KILL, "shipping", 0.0)]
    running = asyncio.create_task(FaultInjector(inject_until_ended, gate).run(faults, orders=9))
    await gate.wait_until_open(8)
    await wait_until(lambda: bool(begun))
    assert begun == ["payment-internal"]
    ending.set()
    await running
    assert begun == ["payment-internal", "shipping"]
