"""Run a service in a process of its own, as its image does."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class ServiceProcess:
    """A process that serves, its ports, of which the internal one is optional, and the lines of its log."""

    process: asyncio.subprocess.Process
    port: int
    internal_port: int | None
    log: list[bytes]


@asynccontextmanager
async def service_process(
    package: str, *, folder: Path | None = None, **environment: str
) -> AsyncIterator[ServiceProcess]:
    """Run `python -m <package>` on free ports of loopback, with these variables too, until the context is left.

    The log is complete when the context has been left.
    """
    local = {"HOST": "127.0.0.1", "PORT": "0", "INTERNAL_PORT": "0", "DRAIN_SECONDS": "0", "GRPC_VERBOSITY": "NONE"}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", package),
        cwd=folder,
        env={**os.environ, **local, **environment},
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    log: list[bytes] = []
    rest: asyncio.Task[None] | None = None
    try:
        async for line in process.stdout:
            log.append(line)
            if (event := json.loads(line))["event"] == "serving":
                break
        else:
            pytest.fail("the service ended before it served")
        rest = asyncio.create_task(_read(process.stdout, log))  # a full pipe would block the service
        yield ServiceProcess(process, event["port"], event.get("internal_port"), log)
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
        if rest is not None:
            await rest


async def _read(lines: asyncio.StreamReader, log: list[bytes]) -> None:
    log.extend([line async for line in lines])
