"""The states of a shop's processes, and the restart of those that end."""

import asyncio
import time
from collections.abc import Coroutine, Iterable
from typing import Any

from chassis.errors import DomainError
from shop_cli.local.child_process import ChildProcess
from shop_cli.local.health import NO_DATABASE
from shop_cli.local.ports import PortInUse

_STARTING_SECONDS = 10.0
_CHECK_SECONDS = 0.25  # while a process is not serving
_FIRST_DELAY_SECONDS = 0.2
_MAX_DELAY_SECONDS = 10.0
_HEALTHY_SECONDS = 10.0


async def process_states(processes: Iterable[ChildProcess]) -> dict[str, str]:
    """Return the state of each process by name: `starting`, `serving`, `not ready`, `frozen` or `ended (<status>)`.

    A process that is not ready says why if it responds, and an ended one if it cannot be started again.
    """
    states = {process.name: _state(process) for process in processes}
    return dict(zip(states, await asyncio.gather(*states.values()), strict=True))


class Monitor:
    """Tracks the states of processes, as `process_states` returns them, while `run` runs."""

    def __init__(self, processes: Iterable[ChildProcess]) -> None:
        self._processes = list(processes)
        self.states = {process.name: "starting" for process in self._processes}
        self._changed = asyncio.Event()
        self._checks = {process.name: asyncio.Event() for process in self._processes}

    @property
    def all_serving(self) -> bool:
        return all(state == "serving" for state in self.states.values())

    async def run(self) -> None:
        """Update the states until cancelled: poll a process that is not serving, else wait for a change."""
        async with asyncio.TaskGroup() as tasks:
            for process in self._processes:
                tasks.create_task(self._observe(process), name=f"observe {process.name}")

    def check_now(self, name: str) -> None:
        """Check the state of a process now, because something changed it."""
        self._checks[name].set()

    def wait_for_change(self) -> Coroutine[Any, Any, object]:
        """Wait until a process was restarted or its state changed, from this call on."""
        return self._changed.wait()  # no coroutine of its own, which would begin to wait when a task first runs it

    async def _observe(self, process: ChildProcess) -> None:
        starts = 0
        while True:
            state = await _state(process)
            if (state, process.starts) != (self.states[process.name], starts):
                self.states[process.name], starts = state, process.starts
                self._changed.set()
                self._changed = asyncio.Event()
            await self._wait(
                process, process.wait_for_change() if state == "serving" else asyncio.sleep(_CHECK_SECONDS)
            )

    async def _wait(self, process: ChildProcess, change: Coroutine[Any, Any, None]) -> None:
        """Wait for a change, the end of the process or a request for a check."""
        check = self._checks[process.name]
        waits: set[asyncio.Future[Any]] = {asyncio.ensure_future(check.wait()), asyncio.ensure_future(change)}
        if process.running:
            waits.add(asyncio.ensure_future(process.wait()))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
        check.clear()


async def _state(process: ChildProcess) -> str:
    if not process.running:
        return f"ended ({process.exit_code}){_taken_port(process)}"
    if process.paused:
        return "frozen"
    is_ready = await process.is_serving()
    if is_ready:
        return "serving"
    if time.monotonic() - process.started_at < _STARTING_SECONDS:
        return "starting"
    return "not ready" if is_ready is None else NO_DATABASE


def _taken_port(process: ChildProcess) -> str:
    """Return what prevents a process from being started again, "" if nothing does."""
    try:
        process.require_free_ports()
    except PortInUse as error:
        return f", port {error.metadata['port']} is in use"
    return ""


async def supervise(processes: Iterable[ChildProcess]) -> None:
    """Restart every process that ends, with exponential backoff, until cancelled."""
    async with asyncio.TaskGroup() as tasks:
        for process in processes:
            tasks.create_task(_supervise(process), name=f"supervise {process.name}")


async def _supervise(process: ChildProcess) -> None:
    delay_seconds = _FIRST_DELAY_SECONDS
    while True:
        await process.wait()
        if time.monotonic() - process.started_at > _HEALTHY_SECONDS:
            delay_seconds = _FIRST_DELAY_SECONDS
        await asyncio.sleep(delay_seconds)
        delay_seconds = min(2 * delay_seconds, _MAX_DELAY_SECONDS)
        try:
            await process.start()
        except DomainError:  # another program took the port meanwhile; the status display shows the service as ended
            continue
