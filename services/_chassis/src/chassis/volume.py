"""Gauges of a SQLite file and its volume: on a full volume every write fails."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from opentelemetry.metrics import CallbackOptions, Meter, Observation

from chassis.database import sqlite_path


def observe_volume(meter: Meter, url: str) -> None:
    """Export the size of the SQLite file at a database URL, and how full its volume is. None for PostgreSQL."""
    path = sqlite_path(url)
    if path is None:
        return
    meter.create_observable_gauge(
        "shop.store.usage",
        [_observe(lambda: _file_bytes(path))],
        unit="By",
        description="Size of the SQLite file with its write-ahead log",
    )
    meter.create_observable_gauge(
        "shop.store.volume.usage",
        [_observe(lambda: _volume_bytes(path)[0])],
        unit="By",
        description="Used space of the volume with the SQLite file",
    )
    meter.create_observable_gauge(
        "shop.store.volume.limit",
        [_observe(lambda: _volume_bytes(path)[1])],
        unit="By",
        description="Size of the volume with the SQLite file, without what is reserved for root",
    )


def _observe(read: Callable[[], int]) -> Callable[[CallbackOptions], Iterable[Observation]]:
    """Return a callback for the SDK. A file or folder that does not exist yet has no observation."""

    def callback(_options: CallbackOptions) -> Iterable[Observation]:
        try:
            return [Observation(read())]
        except OSError:
            return []

    return callback


def _file_bytes(path: Path) -> int:
    log = path.with_name(f"{path.name}-wal")
    return path.stat().st_size + (log.stat().st_size if log.exists() else 0)


def _volume_bytes(path: Path) -> tuple[int, int]:
    """Return used and usable bytes as `df` does."""
    volume = os.statvfs(path.parent)
    used = volume.f_blocks - volume.f_bfree
    return used * volume.f_frsize, (used + volume.f_bavail) * volume.f_frsize
