"""Inject the planned faults, at most two at a time."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from shop_lab.prove.fault_plan import LOOKAHEAD, Fault
from shop_lab.prove.progress_gate import ProgressGate

MAX_CONCURRENT = 2
_FRESH_ORDERS = 10


@dataclass
class FaultInjector:
    """Injects planned faults, each in its turn.

    Attributes:
        inject: injects a fault and returns once its target is ready again.
        gate: counts the orders that the plan refers to.
        counts: the number of injected faults by the name of their kind.
    """

    inject: Callable[[Fault], Awaitable[None]]
    gate: ProgressGate
    counts: Counter[str] = field(default_factory=Counter)
    _locks: defaultdict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))

    async def run(self, plan: Sequence[Fault], orders: int) -> None:
        """Inject every fault in its turn; return once all targets are ready again.

        Open the gate to at most LOOKAHEAD orders beyond the next fault; if these are finished, to a few more. The last
        ones of all `orders` remain for the last faults, of which some take seconds to begin.
        """
        slots = asyncio.Semaphore(MAX_CONCURRENT)
        async with asyncio.TaskGroup() as tasks:
            for index, fault in enumerate(plan):
                # The orders for this fault begin only now: otherwise they would be finished before it.
                await slots.acquire()
                share = (orders - self.gate.finished) // (len(plan) - index + 1)
                fresh = self.gate.finished + min(share, _FRESH_ORDERS)
                await self.gate.open_until(max(fault.after_orders + LOOKAHEAD, fresh))
                await self.gate.wait_until_finished(fault.after_orders)
                tasks.create_task(self._inject_alone(fault, slots), name=f"{fault.kind.value} {fault.target}")
        await self.gate.open_until(orders)

    async def _inject_alone(self, fault: Fault, slots: asyncio.Semaphore) -> None:
        try:
            async with AsyncExitStack() as stack:
                for name in fault.processes:
                    await stack.enter_async_context(self._locks[name])
                self.counts[fault.kind.value] += 1
                await self.inject(fault)
        finally:
            slots.release()
