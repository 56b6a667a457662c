"""Restart processes that end, with exponential backoff."""

import asyncio
import time

from chassis.errors import DomainError
from shop_cli.local.processes import Process, Shop

_FIRST_DELAY_SECONDS = 0.2
_MAX_DELAY_SECONDS = 10.0
_HEALTHY_SECONDS = 10.0


async def supervise(shop: Shop) -> None:
    """Restart every process that ends, until cancelled."""
    async with asyncio.TaskGroup() as tasks:
        for process in shop:
            tasks.create_task(_supervise(process), name=f"supervise {process.name}")


async def _supervise(process: Process) -> None:
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
