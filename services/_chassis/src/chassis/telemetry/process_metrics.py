"""Process metrics: CPU, memory, threads, files, volume, garbage collection, event loop lag and TLS certificate."""

import asyncio
import gc
import os
import resource
import shutil
import time
from pathlib import Path

from chassis.telemetry import semconv
from chassis.telemetry.instruments import Attributes, Telemetry
from chassis.tls.certificates import Certificates

_IDLE_INTERVAL_SECONDS = 1.0
_BUSY_INTERVAL_SECONDS = 0.1
_BUSY_SHARE = 0.02  # a process that uses more than this share of a CPU is busy


def observe_process(telemetry: Telemetry) -> None:
    """Export this process's metrics until it ends. Some of them need /proc."""
    telemetry.observe(semconv.PROCESS_CPU, _cpu_seconds)
    telemetry.observe(semconv.PROCESS_MEMORY, _resident_bytes)
    telemetry.observe(semconv.PROCESS_THREADS, lambda: [(len(os.listdir("/proc/self/task")), ())])  # noqa: PTH208
    telemetry.observe(semconv.PROCESS_FILES, lambda: [(len(os.listdir("/proc/self/fd")), ())])  # noqa: PTH208
    telemetry.observe(semconv.GC_COLLECTIONS, _collections)
    pauses, started = telemetry.histogram(semconv.GC_PAUSE), 0.0

    def record_pause(phase: str, _info: object) -> None:
        nonlocal started
        if phase == "start":
            started = time.perf_counter()
        else:
            pauses.record(time.perf_counter() - started)

    gc.callbacks.append(record_pause)


def _resident_bytes() -> list[tuple[float, Attributes]]:
    return [(int(Path("/proc/self/statm").read_text("ascii").split()[1]) * resource.getpagesize(), ())]


def _cpu_seconds() -> list[tuple[float, Attributes]]:
    used = os.times()
    return [(used.user, ((semconv.CPU_MODE, "user"),)), (used.system, ((semconv.CPU_MODE, "system"),))]


def _collections() -> list[tuple[float, Attributes]]:
    return [(found["collections"], ((semconv.GC_GENERATION, number),)) for number, found in enumerate(gc.get_stats())]


def observe_volume(telemetry: Telemetry, path: Path) -> None:
    """Export the size of a SQLite file and the usage of its volume. When the volume is full, every write fails."""
    telemetry.observe(semconv.STORE_USAGE, lambda: [(_sqlite_bytes(path), ())])
    telemetry.observe(semconv.STORE_VOLUME_USAGE, lambda: [(shutil.disk_usage(path.parent).used, ())])
    # Like `df`, exclude the space reserved for root: the limit is the used and the free space.
    telemetry.observe(semconv.STORE_VOLUME_LIMIT, lambda: [(sum(shutil.disk_usage(path.parent)[1:]), ())])


def _sqlite_bytes(path: Path) -> int:
    log = path.with_name(f"{path.name}-wal")
    return path.stat().st_size + (log.stat().st_size if log.exists() else 0)


def observe_certificates(telemetry: Telemetry, certificates: Certificates) -> None:
    # Call refresh() here: otherwise, a process that neither serves nor makes calls would never reload the files.
    telemetry.observe(semconv.CERTIFICATE_EXPIRY, lambda: [(certificates.refresh().expires_at, ())])
    telemetry.observe(semconv.CERTIFICATE_LIFETIME, lambda: [(certificates.current.lifetime_seconds, ())])
    telemetry.observe(semconv.FAILED_RELOADS, lambda: [(certificates.failed_reloads, ())])


async def record_loop_lag(telemetry: Telemetry) -> None:
    """Until cancelled, record how late a timer on the event loop fires.

    The timer runs every 0.1 s, or every second while the process uses less than 2 % of a CPU.
    """
    lags, interval, cpu = telemetry.histogram(semconv.LOOP_LAG), _BUSY_INTERVAL_SECONDS, time.process_time()
    while True:
        due = time.perf_counter() + interval
        await asyncio.sleep(interval)
        lags.record(max(0.0, time.perf_counter() - due))  # uvloop timers may fire up to a millisecond early
        used, cpu = time.process_time() - cpu, time.process_time()
        # Wake an idle process less often: ten wake-ups a second would take most of its CPU time.
        interval = _BUSY_INTERVAL_SECONDS if used > _BUSY_SHARE * interval else _IDLE_INTERVAL_SECONDS
