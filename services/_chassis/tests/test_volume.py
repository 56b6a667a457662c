import shutil
from pathlib import Path

import pytest

from chassis.sql.sqlite import connect
from chassis.sql.volume import observe_volume
from shop_kit.metrics import measured


def exported(url: str) -> dict[str, float]:
    """Return the values of all gauges of a database by name."""
    telemetry, metrics = measured()
    observe_volume(telemetry, url)
    return {name: value for (name,), value in metrics().items()}


def test_the_size_of_a_sqlite_file_includes_its_write_ahead_log(tmp_path: Path) -> None:
    path = tmp_path / "rows.db"
    connection = connect(path)
    connection.execute("CREATE TABLE stored (row TEXT)")
    log = tmp_path / "rows.db-wal"
    assert log.stat().st_size > 0
    assert exported(f"sqlite:///{path}")["shop.store.usage"] == path.stat().st_size + log.stat().st_size
    connection.close()


def test_the_space_of_a_volume_is_exported(tmp_path: Path) -> None:
    gauges = exported(f"sqlite:///{tmp_path}/rows.db")
    usage = shutil.disk_usage(tmp_path)
    assert gauges["shop.store.volume.usage"] == pytest.approx(usage.used, rel=0.05)
    assert gauges["shop.store.volume.limit"] == pytest.approx(usage.used + usage.free, rel=0.05)


def test_a_file_in_a_folder_that_does_not_exist_yet_has_no_gauges(tmp_path: Path) -> None:
    assert exported(f"sqlite:///{tmp_path}/missing/rows.db") == {}


def test_a_database_on_postgresql_has_no_gauges() -> None:
    assert exported("postgresql://shop@host/rows") == {}
