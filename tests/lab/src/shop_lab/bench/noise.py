"""CPU time that other work on this machine uses while something is measured."""

import os
import time
from collections import defaultdict
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
_PARENT_OF_ALL = 0


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


def cpu_seconds_by_process(pids: Mapping[str, int]) -> dict[str, float]:
    """Return the CPU time that processes and their descendants have used so far."""
    stats = _all_stats()
    return {name: tree_seconds(stats, pid) for name, pid in pids.items()}


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
