"""Runs of the load generator as a process of its own, because Locust patches the process that imports it."""

import asyncio
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class LoadRun:
    """What a finished run printed."""

    status: int
    events: list[dict[str, Any]]
    errors: str

    @property
    def summary(self) -> dict[str, Any]:
        (found,) = (event for event in self.events if event["event"] == "summary")
        return found


async def start_load(url: str, **settings: object) -> asyncio.subprocess.Process:
    """Start a load generator, without Locust's page unless `web_port` is given."""
    environment = {"STOREFRONT_URL": url, "WEB_PORT": "0", "SEED": "test", "THINK_SECONDS": "0.05"}
    environment |= {name.upper(): str(value) for name, value in settings.items()}
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "load_generator"),
        env={"PATH": os.environ["PATH"], **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def figures_until(
    process: asyncio.subprocess.Process, condition: Callable[[dict[str, Any]], object]
) -> dict[str, Any]:
    """Return the first line of figures that meets a condition. Raise EOFError if the load generator ends before."""
    assert process.stdout is not None
    async for line in process.stdout:
        event = json.loads(line)
        if event["event"] == "figures" and condition(event):
            return dict(event)
    raise EOFError


async def finish_load(process: asyncio.subprocess.Process) -> LoadRun:
    """Wait until a load generator ends."""
    output, errors = await process.communicate()
    return LoadRun(await process.wait(), [json.loads(line) for line in output.splitlines()], errors.decode())


async def run_load(url: str, **settings: object) -> LoadRun:
    """Run a load generator to its end."""
    return await finish_load(await start_load(url, **settings))
