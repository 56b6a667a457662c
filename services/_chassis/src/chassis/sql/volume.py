import os
from pathlib import Path

from chassis.sql.url import sqlite_path
from chassis.telemetry import semconv
from chassis.telemetry.instruments import Telemetry


def observe_volume(telemetry: Telemetry, url: str) -> None:
    """Export the size of a SQLite file and the usage of its volume. When the volume is full, every write fails."""
    path = sqlite_path(url)
    if path is None:
        return
    telemetry.observe(semconv.STORE_USAGE, lambda: [(_file_bytes(path), ())])
    telemetry.observe(semconv.STORE_VOLUME_USAGE, lambda: [(_volume_bytes(path)[0], ())])
    telemetry.observe(semconv.STORE_VOLUME_LIMIT, lambda: [(_volume_bytes(path)[1], ())])


def _file_bytes(path: Path) -> int:
    log = path.with_name(f"{path.name}-wal")
    return path.stat().st_size + (log.stat().st_size if log.exists() else 0)


def _volume_bytes(path: Path) -> tuple[int, int]:
    """Return the volume's used and total usable bytes, as `df` computes them."""
    volume = os.statvfs(path.parent)
    used = volume.f_blocks - volume.f_bfree
    return used * volume.f_frsize, (used + volume.f_bavail) * volume.f_frsize
