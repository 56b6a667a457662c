"""Measures processes from outside: CPU and memory from the operating system, speed from h2load."""

import asyncio
import os
import re
import shutil
import struct
import sys
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile

import grpc
from google.protobuf.message import Message

_SCHEDULER_CLOCK = 2  # CPUCLOCK_SCHED of the kernel
_PAGE = os.sysconf("SC_PAGE_SIZE")


def cpu_seconds(pids: Iterable[int]) -> float:
    """Return the CPU time that processes have used so far, user and system, to the nanosecond.

    /proc/PID/stat has clock ticks of 10 ms, which is more than what an idle process uses in five seconds.
    """
    return sum(time.clock_gettime(_cpu_clock(pid)) for pid in pids)


def _cpu_clock(pid: int) -> int:
    """Return the clock of a process as clock_getcpuclockid(3) does, which Python lacks."""
    return (~pid << 3) | _SCHEDULER_CLOCK


def resident_megabytes(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE / 1e6


@asynccontextmanager
async def running_script(script: Path, port: int, environment: Mapping[str, str] = os.environ) -> AsyncIterator[int]:
    """Run a script that serves gRPC on a port; yield its process id."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, str(script), env={**environment, "PORT": str(port), "GRPC_VERBOSITY": "ERROR"}
    )
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            await asyncio.wait_for(channel.channel_ready(), 20)
        yield child.pid
    finally:
        child.kill()
        await child.wait()


def find_h2load() -> str:
    """Return the path of h2load. End the program if it is missing."""
    program = shutil.which("h2load")
    if program is None:
        sys.exit("make bench needs h2load (Debian and Ubuntu: apt-get install nghttp2-client)")
    return program


async def load(address: str, method: str, request: Message, calls: int) -> float:
    """Call a method with h2load, 64 calls in flight on 4 connections; return calls per second. All must succeed."""
    program = find_h2load()
    body = request.SerializeToString()
    with NamedTemporaryFile() as file:
        file.write(struct.pack(">BI", 0, len(body)) + body)
        file.flush()
        child = await asyncio.create_subprocess_exec(
            *(program, "-n", str(calls), "-c", "4", "-m", "16", "-d", file.name),
            *("-H", "content-type: application/grpc", "-H", "te: trailers", f"http://{address}/{method}"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        output = (await child.communicate())[0].decode()
    finished = re.search(r"finished in [^,]+, ([\d.]+) req/s", output)
    if finished is None or f"{calls} succeeded" not in output:
        sys.exit(f"h2load against {method} at {address} failed:\n{output}")
    return float(finished[1])
