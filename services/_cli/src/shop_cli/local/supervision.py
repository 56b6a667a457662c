import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

from chassis.errors import DomainError
from chassis.values.backoff import backoff_seconds
from shop_cli.local.child_process import NO_DATABASE, ChildProcess
from shop_cli.local.ports import PortInUse

_STARTING_SECONDS = 10.0
_CHECK_SECONDS = 0.25
_READINESS_SECONDS = 5.0  # check serving processes only this often, because each check costs milliseconds
_FIRST_DELAY_SECONDS = 0.2
_MAX_DELAY_SECONDS = 10.0
_HEALTHY_SECONDS = 10.0


async def observe(process: ChildProcess, report: Callable[[ChildProcess], None]) -> None:
    """Update the process's `state` until cancelled. Call `report` when the state changes or the process restarts."""
    starts, due = 0, 0.0
    while True:
        is_unchanged = process.starts == starts and process.running and not process.paused
        if process.state != "serving" or not is_unchanged or time.monotonic() > due:
            state = await state_of(process)
            due = time.monotonic() + _READINESS_SECONDS
            if (state, process.starts) != (process.state, starts):
                process.state, starts = state, process.starts
                report(process)
        await asyncio.sleep(_CHECK_SECONDS)


async def state_of(process: ChildProcess) -> str:
    """Return `starting`, `serving`, `not ready`, `frozen` or `ended (<status>)`.

    `not ready` includes the reason if the process responds. If one of its ports is taken, `ended` names that port.
    """
    if not process.running:
        try:
            process.require_free_ports()
        except PortInUse as error:
            return f"ended ({process.exit_code}), port {error.metadata['port']} is in use"
        return f"ended ({process.exit_code})"
    if process.paused:
        return "frozen"
    is_ready = await process.is_serving()
    if is_ready:
        return "serving"
    if time.monotonic() - process.started_at < _STARTING_SECONDS:
        return "starting"
    return "not ready" if is_ready is None else NO_DATABASE


async def supervise(process: ChildProcess) -> None:
    """Restart a process whenever it ends, with exponential backoff, until cancelled."""
    failures = 0
    while True:
        await process.wait()
        was_healthy = time.monotonic() - process.started_at > _HEALTHY_SECONDS
        failures = 1 if was_healthy else failures + 1
        await asyncio.sleep(backoff_seconds(failures, _FIRST_DELAY_SECONDS, _MAX_DELAY_SECONDS))
        with suppress(DomainError):  # another program has taken a port, which `state_of` reports
            await process.start()
