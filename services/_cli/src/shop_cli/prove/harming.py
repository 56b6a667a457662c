"""Does the harm that is planned, one or two faults at a time."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Protocol

from shop_cli.prove.pace import Pace
from shop_cli.prove.plan import Fault, Harm

AT_A_TIME = 2
_LOOKAHEAD = 100


class Target(Protocol):
    """A process that can be harmed."""

    async def start(self) -> None:
        """Start it."""

    def kill(self) -> None:
        """End it at once."""

    def pause(self) -> None:
        """Freeze it."""

    def resume(self) -> None:
        """Let it go on."""

    async def wait(self) -> int:
        """Wait until it ended."""

    async def wait_until_serving(self, timeout_seconds: float) -> float:
        """Wait until it is ready."""


class Harmer:
    """Does the harm of a schedule to processes by name; `done` is where what was done is counted."""

    def __init__(self, targets: Mapping[str, Target], pace: Pace, done: Counter[str], ready_seconds: float) -> None:
        self._done = done
        self._targets = targets
        self._pace = pace
        self._ready_seconds = ready_seconds
        self._locks = {name: asyncio.Lock() for name in targets}

    async def run(self, schedule: Sequence[Fault], orders: int) -> None:
        """Do everything in its time; when this returns every process runs and is ready."""
        room = asyncio.Semaphore(AT_A_TIME)
        async with asyncio.TaskGroup() as tasks:
            for fault in schedule:
                await self._pace.allow(fault.after + _LOOKAHEAD)
                await self._pace.wait_for_finished(fault.after)
                await room.acquire()
                tasks.create_task(self._inflict(fault, room), name=f"{fault.harm.value} {fault.target}")
            await self._pace.allow(orders)

    async def _inflict(self, fault: Fault, room: asyncio.Semaphore) -> None:
        target = self._targets[fault.target]
        try:
            async with self._locks[fault.target]:
                self._done[fault.harm.value] += 1
                if fault.harm is Harm.PAUSE:
                    target.pause()
                    await asyncio.sleep(fault.seconds)
                    target.resume()
                else:
                    target.kill()
                    await target.wait()
                    await asyncio.sleep(fault.seconds)
                    await target.start()
                await target.wait_until_serving(self._ready_seconds)
        finally:
            room.release()
