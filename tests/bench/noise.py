"""CPU time that other work on this machine uses while something is measured."""

import os
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


class Noise:
    """From its creation on, the CPU time of all but this process and its descendants.

    Work of the kernel, such as that of the disk's driver, and time that the hypervisor gives to others count as well.
    """

    def __init__(self) -> None:
        self._at = time.monotonic()
        self._seconds = _others_seconds()

    def percent(self) -> float:
        """Return the average use so far in percent of one core."""
        return max(0.0, (_others_seconds() - self._seconds) / (time.monotonic() - self._at) * 100)


def cpu_seconds_by_process(pids: Mapping[str, int]) -> dict[str, float]:
    """Return the CPU time that processes and their descendants have used so far."""
    stats = _all_stats()
    return {name: tree_seconds(stats, pid) for name, pid in pids.items()}


def _others_seconds() -> float:
    return busy_seconds(Path("/proc/stat").read_text()) - tree_seconds(_all_stats(), os.getpid())


def _all_stats() -> list[str]:
    stats = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            stats.append(path.read_text())
    return stats


def busy_seconds(stat: str) -> float:
    """Return the CPU time of all processes, and what the hypervisor took, from the contents of /proc/stat.

    That of interrupts is left out, for most serve the measured processes' own connections.
    """
    user, nice, system, _idle, _waiting, _irq, _softirq, stolen = map(int, stat.partition("\n")[0].split()[1:9])
    return (user + nice + system + stolen) / _CLOCK_TICKS


def tree_seconds(stats: Iterable[str], root: int) -> float:
    """Return the CPU time of a process and its descendants, from the contents of all files /proc/PID/stat."""
    children: dict[int, list[int]] = defaultdict(list)
    ticks: dict[int, int] = {}
    for stat in stats:
        pid = int(stat.split(" ", 1)[0])
        fields = stat.rpartition(")")[2].split()
        children[int(fields[1])].append(pid)
        ticks[pid] = sum(map(int, fields[11:15]))  # its own, and that of children that have ended
    found, rest = 0, [root]
    while rest:
        pid = rest.pop()
        found += ticks.get(pid, 0)
        rest += children[pid]
    return found / _CLOCK_TICKS
