"""Keeps processes running: what ends is started again, the sooner it ends again the later."""

import asyncio
import time

from chassis.errors import DomainError
from shop_cli.local.processes import Process, Shop

_FIRST_DELAY_SECONDS = 0.2
_LONGEST_DELAY_SECONDS = 10.0
_HEALTHY_SECONDS = 10.0


async def keep_running(shop: Shop) -> None:
    """Start again whatever ends, until cancelled."""
    async with asyncio.TaskGroup() as tasks:
        for process in shop:
            tasks.create_task(_keep(process), name=f"keep {process.name}")


async def _keep(process: Process) -> None:
    delay_seconds = _FIRST_DELAY_SECONDS
    while True:
        await process.wait()
        if time.monotonic() - process.started_at > _HEALTHY_SECONDS:
            delay_seconds = _FIRST_DELAY_SECONDS
        await asyncio.sleep(delay_seconds)
        delay_seconds = min(2 * delay_seconds, _LONGEST_DELAY_SECONDS)
        try:
            await process.start()
        except DomainError:  # its port was taken meanwhile; the table tells that it is down
            continue
