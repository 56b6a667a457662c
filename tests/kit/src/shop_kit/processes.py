"""Run a service in a process of its own, as its image does."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest


@dataclass(frozen=True)
class ServiceProcess:
    """A process that serves, and its ports; without an internal service there is no internal port."""

    process: asyncio.subprocess.Process
    port: int
    internal_port: int | None


@asynccontextmanager
async def service_process(package: str, **environment: str) -> AsyncIterator[ServiceProcess]:
    """Run `python -m <package>` on free ports of loopback, with these variables too, until the context is left."""
    local = {"HOST": "127.0.0.1", "PORT": "0", "INTERNAL_PORT": "0", "DRAIN_SECONDS": "0", "GRPC_VERBOSITY": "NONE"}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", package), env={**os.environ, **local, **environment}, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    output: asyncio.Task[bytes] | None = None
    try:
        async for line in process.stdout:
            if (event := json.loads(line))["event"] == "serving":
                break
        else:
            pytest.fail("the service ended before it served")
        output = asyncio.create_task(process.stdout.read())  # a full pipe would block the service
        yield ServiceProcess(process, event["port"], event.get("internal_port"))
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
        if output is not None:
            await output
