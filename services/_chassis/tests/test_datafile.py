import os
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from chassis.datafile import DataFile


def write(path: Path, text: str, *, stamp: int) -> None:
    path.write_text(text)
    os.utime(path, ns=(stamp, stamp))


def opened(path: Path) -> DataFile[int]:
    write(path, "1", stamp=1)
    return DataFile(path, int)


def test_a_changed_file_is_read_anew(tmp_path: Path) -> None:
    data = opened(tmp_path / "data")
    write(tmp_path / "data", "2", stamp=2)
    data.refresh()
    assert data.value == 2


def test_a_broken_file_is_refused_and_told_once(tmp_path: Path) -> None:
    data = opened(tmp_path / "data")
    write(tmp_path / "data", "two", stamp=2)
    with capture_logs() as logs:
        data.refresh()
        data.refresh()
    assert data.value == 1
    assert [entry["log_level"] for entry in logs] == ["warning"]


def test_a_missing_file_leaves_the_old_value(tmp_path: Path) -> None:
    data = opened(tmp_path / "data")
    (tmp_path / "data").unlink()
    data.refresh()
    assert data.value == 1


def test_a_file_that_is_swapped_for_another_of_the_same_time_is_seen(tmp_path: Path) -> None:
    data = opened(tmp_path / "data")
    write(tmp_path / "new", "2", stamp=1)
    (tmp_path / "new").rename(tmp_path / "data")
    data.refresh()
    assert data.value == 2


def test_a_broken_file_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("one")
    with pytest.raises(OSError, match="invalid literal"):
        DataFile(tmp_path / "data", int)
