"""Inject the planned faults, at most two at a time."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence

from shop_cli.local.control import ControllableProcess
from shop_cli.prove.fault_plan import Fault, FaultKind
from shop_cli.prove.progress_gate import ProgressGate

MAX_CONCURRENT = 2
_LOOKAHEAD = 100


class FaultInjector:
    """Injects planned faults into processes.

    Args:
        processes: by the names that the plan uses.
        gate: counts the orders that the plan refers to.
        counts: where injected faults are counted by kind.
        ready_seconds: how long a process may take to be ready again.
    """

    def __init__(
        self,
        processes: Mapping[str, ControllableProcess],
        gate: ProgressGate,
        counts: Counter[str],
        ready_seconds: float,
    ) -> None:
        self._processes = processes
        self._gate = gate
        self._counts = counts
        self._ready_seconds = ready_seconds
        self._locks = {name: asyncio.Lock() for name in processes}

    async def run(self, plan: Sequence[Fault], orders: int) -> None:
        """Inject every fault in its turn; return once all processes are ready again.

        Open the gate to at most 100 orders beyond the next fault, and to all `orders` after the last one.
        """
        slots = asyncio.Semaphore(MAX_CONCURRENT)
        async with asyncio.TaskGroup() as tasks:
            for fault in plan:
                await self._gate.open_until(fault.after_orders + _LOOKAHEAD)
                await self._gate.wait_until_finished(fault.after_orders)
                await slots.acquire()
                tasks.create_task(self._inject(fault, slots), name=f"{fault.kind.value} {fault.target}")
            await self._gate.open_until(orders)

    async def _inject(self, fault: Fault, slots: asyncio.Semaphore) -> None:
        process = self._processes[fault.target]
        try:
            async with self._locks[fault.target]:
                self._counts[fault.kind.value] += 1
                if fault.kind is FaultKind.PAUSE:
                    process.pause()
                    await asyncio.sleep(fault.seconds)
                    process.resume()
                else:
                    process.kill()
                    await process.wait()
                    await asyncio.sleep(fault.seconds)
                    await process.start()
                await process.wait_until_serving(self._ready_seconds)
        finally:
            slots.release()
