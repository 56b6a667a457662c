"""The state of each process of a shop, in a word."""

import asyncio
import time

from shop_cli.local.processes import Process, Shop

_STARTING_SECONDS = 10.0


async def process_states(shop: Shop) -> dict[str, str]:
    """Return the state of each process by name: `starting`, `serving`, `not ready` or `ended (<exit status>)`."""
    states = await asyncio.gather(*(_state(process) for process in shop))
    return dict(zip((process.name for process in shop), states, strict=True))


async def _state(process: Process) -> str:
    if not process.running:
        return f"ended ({process.exit_code})"
    if await process.is_serving():
        return "serving"
    return "starting" if time.monotonic() - process.started_at < _STARTING_SECONDS else "not ready"
