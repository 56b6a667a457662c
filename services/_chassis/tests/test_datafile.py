import gc
import os
from pathlib import Path
from sys import getswitchinterval
from threading import get_ident

import pytest
from structlog.testing import capture_logs

from chassis.background import in_background
from chassis.values.datafile import DataFile
from shop_kit.waiting import wait_until


def write(path: Path, text: str, *, modified: int) -> None:
    path.write_text(text, encoding="utf-8")
    os.utime(path, ns=(modified, modified))


async def test_a_file_is_reloaded_off_the_event_loop_when_it_was_changed_or_replaced_by_one_with_the_same_time(
    tmp_path: Path,
) -> None:
    write(tmp_path / "data", "\ufeff1", modified=1)
    data = DataFile(tmp_path / "data", lambda raw: (int(raw), get_ident(), gc.isenabled(), getswitchinterval()))
    async with in_background(data.watch):
        write(tmp_path / "data", "\ufeff2", modified=2)
        await wait_until(lambda: data.value[0] == 2)
        write(tmp_path / "new", "3", modified=2)
        (tmp_path / "new").rename(tmp_path / "data")
        await wait_until(lambda: data.value[0] == 3)
    assert data.value[1] != get_ident()
    assert not data.value[2]  # a garbage collection would stop all threads
    assert data.value[3] < getswitchinterval()  # at the usual interval, calls would wait ten times as long


def test_an_invalid_or_missing_file_keeps_the_value_and_the_invalid_one_is_logged_once(tmp_path: Path) -> None:
    write(tmp_path / "data", "1", modified=1)
    data = DataFile(tmp_path / "data", int)
    write(tmp_path / "data", "two", modified=2)
    with capture_logs() as logs:
        data.refresh()
        data.refresh()
    assert [entry["log_level"] for entry in logs] == ["warning"]
    (tmp_path / "data").unlink()
    data.refresh()
    assert data.value == 1


def test_an_invalid_file_fails_the_start(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("one")
    with pytest.raises(OSError, match="invalid literal"):
        DataFile(tmp_path / "data", int)
