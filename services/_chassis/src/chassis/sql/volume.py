import shutil
from pathlib import Path

from chassis.sql.url import sqlite_path
from chassis.telemetry import semconv
from chassis.telemetry.instruments import Telemetry


def observe_volume(telemetry: Telemetry, url: str) -> None:
    """Export the size of a SQLite file and the usage of its volume. When the volume is full, every write fails."""
    path = sqlite_path(url)
    if path is None:
        return

    def volume_bytes() -> int:
        usage = shutil.disk_usage(path.parent)
        return usage.used + usage.free  # like `df`, exclude the space reserved for root

    telemetry.observe(semconv.STORE_USAGE, lambda: [(_file_bytes(path), ())])
    telemetry.observe(semconv.STORE_VOLUME_USAGE, lambda: [(shutil.disk_usage(path.parent).used, ())])
    telemetry.observe(semconv.STORE_VOLUME_LIMIT, lambda: [(volume_bytes(), ())])


def _file_bytes(path: Path) -> int:
    log = path.with_name(f"{path.name}-wal")
    return path.stat().st_size + (log.stat().st_size if log.exists() else 0)
