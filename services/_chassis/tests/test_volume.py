import shutil
from contextlib import closing
from pathlib import Path

import pytest

from chassis.sql.sqlite import connect
from chassis.telemetry.process_metrics import observe_volume
from shop_kit.metrics import measured


def exported(path: Path) -> dict[str, float]:
    """Return the values of a database's gauges, by name."""
    telemetry, metrics = measured()
    observe_volume(telemetry, path)
    return {name: value for (name,), value in metrics().items()}


def test_the_size_of_a_sqlite_file_with_its_write_ahead_log_and_the_space_of_its_volume_are_exported(
    tmp_path: Path,
) -> None:
    path, log = tmp_path / "rows.db", tmp_path / "rows.db-wal"
    with closing(connect(path)) as connection:
        connection.execute("CREATE TABLE stored (row TEXT)")
        gauges, sizes = exported(path), (path.stat().st_size, log.stat().st_size)
    usage = shutil.disk_usage(tmp_path)
    assert sizes[1] > 0
    assert gauges["shop.store.usage"] == sum(sizes)
    assert gauges["shop.store.volume.usage"] == pytest.approx(usage.used, rel=0.05)
    assert gauges["shop.store.volume.limit"] == pytest.approx(usage.used + usage.free, rel=0.05)


def test_a_file_whose_folder_does_not_exist_yet_has_no_gauges(tmp_path: Path) -> None:
    assert exported(tmp_path / "missing/rows.db") == {}
