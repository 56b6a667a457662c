"""Measures processes from outside: CPU time, memory, and what other work on this machine uses meanwhile."""

import asyncio
import os
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import grpc

_SCHEDULER_CLOCK = 2  # CPUCLOCK_SCHED of the kernel
_PAGE = os.sysconf("SC_PAGE_SIZE")
_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
_PARENT_OF_ALL = 0


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
async def bare_server(name: str, port: int) -> AsyncIterator[int]:
    """Run a server of the script bare_server.py on a port; yield its process id."""
    script = Path(__file__).with_name("bare_server.py")
    child = await asyncio.create_subprocess_exec(
        sys.executable, str(script), name, str(port), env={**os.environ, "GRPC_VERBOSITY": "ERROR"}
    )
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            await asyncio.wait_for(channel.channel_ready(), 20)
        yield child.pid
    finally:
        child.kill()
        await child.wait()


class Noise:
    """From its creation on, the CPU time of all but this process and its descendants.

    Threads of the kernel, such as the disk's driver, and time that the hypervisor gives to others count as well. The
    machine's totals in /proc/stat would not do: they are sampled, and count interrupts that processes pay for as well.
    """

    def __init__(self) -> None:
        self._at = time.monotonic()
        self._seconds = _others_seconds()

    def percent(self) -> float:
        """Return the average use so far in percent of one core."""
        return max(0.0, (_others_seconds() - self._seconds) / (time.monotonic() - self._at) * 100)


def with_descendants(pid: int) -> list[int]:
    """Return a process and all that it has started, directly or not, and that still run."""
    return tree(_all_stats(), pid)


def cpu_seconds_of_trees(pids: Iterable[int]) -> float:
    """Return the CPU time that processes and their descendants have used so far."""
    stats = _all_stats()
    return sum(tree_seconds(stats, pid) for pid in pids)


def _others_seconds() -> float:
    stats = _all_stats()
    processes = tree_seconds(stats, _PARENT_OF_ALL) - tree_seconds(stats, os.getpid())
    return processes + stolen_seconds(Path("/proc/stat").read_text())


def _all_stats() -> list[str]:
    stats = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            stats.append(path.read_text())
    return stats


def stolen_seconds(stat: str) -> float:
    """Return the CPU time that the hypervisor gave to others, from the contents of /proc/stat."""
    return int(stat.split()[8]) / _CLOCK_TICKS


def tree_seconds(stats: Collection[str], root: int) -> float:
    """Return the CPU time of a process and its descendants, from the contents of all files /proc/PID/stat."""
    # A process's own, and that of children that have ended.
    ticks = {_pid(stat): sum(map(int, _fields(stat)[11:15])) for stat in stats}
    return sum(ticks.get(pid, 0) for pid in tree(stats, root)) / _CLOCK_TICKS


def tree(stats: Collection[str], root: int) -> list[int]:
    """Return a process and its descendants, from the contents of all files /proc/PID/stat."""
    children: dict[int, list[int]] = defaultdict(list)
    for stat in stats:
        children[int(_fields(stat)[1])].append(_pid(stat))
    found = [root]
    for parent in found:
        found += children[parent]
    return found


def _pid(stat: str) -> int:
    return int(stat.split(" ", 1)[0])


def _fields(stat: str) -> list[str]:
    """Return what follows the process's name, which may contain anything."""
    return stat.rpartition(")")[2].split()
