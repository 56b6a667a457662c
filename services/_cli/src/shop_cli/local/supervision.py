import asyncio
import time
from collections.abc import Callable, Iterable

from chassis.errors import DomainError
from chassis.values.backoff import backoff_seconds
from shop_cli.local.child_process import ChildProcess
from shop_cli.local.health import NO_DATABASE
from shop_cli.local.ports import PortInUse

_STARTING_SECONDS = 10.0
_CHECK_SECONDS = 0.25
_FIRST_DELAY_SECONDS = 0.2
_MAX_DELAY_SECONDS = 10.0
_HEALTHY_SECONDS = 10.0


class Monitor:
    """Tracks the states of processes (see `state_of`) while `run` is running."""

    def __init__(self, processes: Iterable[ChildProcess]) -> None:
        self._processes = list(processes)
        self.states = {process.name: "starting" for process in self._processes}

    @property
    def all_serving(self) -> bool:
        return all(state == "serving" for state in self.states.values())

    async def run(self, report: Callable[[ChildProcess], None]) -> None:
        """Update the states until cancelled. Report each process whose state changed or that was restarted."""
        async with asyncio.TaskGroup() as tasks:
            for process in self._processes:
                tasks.create_task(self._observe(process, report), name=f"observe {process.name}")

    async def _observe(self, process: ChildProcess, report: Callable[[ChildProcess], None]) -> None:
        starts = 0
        while True:
            state = await state_of(process)
            if (state, process.starts) != (self.states[process.name], starts):
                self.states[process.name], starts = state, process.starts
                report(process)
            if state == "serving":
                await _wait_for_change(process)
            else:
                await asyncio.sleep(_CHECK_SECONDS)


async def _wait_for_change(process: ChildProcess) -> None:
    """Wait until a serving process has ended, been restarted or paused, or may have become unready."""
    starts = process.starts
    changing = asyncio.ensure_future(process.wait_for_change())
    try:
        while process.running and process.starts == starts and not process.paused and not changing.done():
            await asyncio.wait([changing], timeout=_CHECK_SECONDS)
    finally:
        changing.cancel()
        await asyncio.gather(changing, return_exceptions=True)


async def state_of(process: ChildProcess) -> str:
    """Return `starting`, `serving`, `not ready`, `frozen` or `ended (<status>)`.

    `not ready` includes the reason if the process responds. `ended` names a taken port that prevents a restart.
    """
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
    """Return the reason why the process cannot restart, such as `, port 50051 is in use`; "" if it can."""
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
    failures = 0
    while True:
        await process.wait()
        if time.monotonic() - process.started_at > _HEALTHY_SECONDS:
            failures = 0
        failures += 1
        await asyncio.sleep(backoff_seconds(failures, _FIRST_DELAY_SECONDS, _MAX_DELAY_SECONDS))
        try:
            await process.start()
        except DomainError:  # another program has taken a port, which `state_of` reports
            continue
