import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from chassis.errors import FailedPrecondition, Unavailable
from shop_cli.clients import default_address
from shop_cli.local.run_file import Run, find_run, locked, published, read_run
from shop_cli.output.next_steps import print_next_steps
from shop_cli.output.printing import console

HOLDER = """
import sys
from pathlib import Path
from shop_cli.local.run_file import Run, locked, published

with locked(Path(sys.argv[1])), published(Run(1, sys.argv[1], {"cart": "127.0.0.1:1", "cart-internal": "127.0.0.1:2"})):
    print("locked", flush=True)
    input()
"""


@contextmanager
def running_elsewhere(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Hold the folder's lock in another process, like a running shop."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout
        assert holder.stdout.readline() == "locked\n"
        yield holder
        holder.kill()


def test_a_second_shop_in_a_folder_is_refused_with_a_line_that_says_how_to_run_one(tmp_path: Path) -> None:
    with (
        running_elsewhere(tmp_path),
        pytest.raises(FailedPrecondition, match=r"process 1\).*--folder OTHER --any-ports"),
        locked(tmp_path),
    ):
        pass


def test_the_run_file_of_a_killed_shop_is_ignored(tmp_path: Path) -> None:
    with running_elsewhere(tmp_path) as holder:
        assert read_run(tmp_path) is not None
        holder.kill()
        holder.wait()
        assert (tmp_path / ".shop" / "run.json").exists()
        assert read_run(tmp_path) is None


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FailedPrecondition, match="cannot write to .*file: Not a directory"), locked(tmp_path / "file"):
        pass


def test_the_token_is_not_part_of_the_text_of_a_run() -> None:
    assert "secret" not in f"{Run(1, '/', token='secret')}"


def test_a_shop_and_its_addresses_are_found_from_a_folder_below_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    with running_elsewhere(tmp_path):
        found = find_run()
        assert found is not None
        assert found.folder == str(tmp_path)
        addresses = [default_address("cart", internal=internal) for internal in (False, True)]
        assert addresses == ["127.0.0.1:1", "127.0.0.1:2"]
        monkeypatch.setenv("CART_ADDR", "elsewhere:3")  # takes precedence over the running shop
        assert default_address("cart", internal=False) == "elsewhere:3"
        (tmp_path / "below/.shop").mkdir()
        (tmp_path / "below/.shop/run.json").touch()  # as a killed shop leaves it behind
        assert find_run() is None
        monkeypatch.delenv("CART_ADDR")
        with pytest.raises(Unavailable, match="was killed"):
            default_address("cart", internal=False)


def modes(folder: Path) -> set[str]:
    return {f"{'d' if path.is_dir() else '-'}{path.stat().st_mode & 0o777:o}" for path in (folder, *folder.rglob("*"))}


def test_only_its_owner_can_read_a_shops_data_and_its_run_file_which_is_removed_at_the_end(tmp_path: Path) -> None:
    data = tmp_path / ".shop"
    (data / "log").mkdir(parents=True, mode=0o755)
    for name in ("orders.db", "log/cart.log"):
        (data / name).touch(0o644)
    before = os.umask(0o022)
    try:
        with locked(tmp_path), published(Run(1, str(tmp_path))):
            (data / "new").mkdir()
            (data / "new" / "file").touch()
            subprocess.run(["touch", data / "of-a-child"], check=True)
            assert (data / "run.json").exists()
            assert modes(data) == {"d700", "-600"}
        assert os.umask(0o022) == 0o022
    finally:
        os.umask(before)
    assert not [*data.glob("run.*")]


def test_links_and_folders_are_printed_whole_and_as_they_are_on_a_narrow_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console, "width", 40)
    folder = tmp_path / "[red]"
    shop = {"storefront": "127.0.0.1:8080"}
    print_next_steps(Run(1, "", shop, "http://localhost:8090", 32 * "t", lab=True), folder)
    printed = capsys.readouterr().out
    assert all(f"http://localhost:8090/{page}?token={32 * 't'}" in printed for page in ("", "faults"))
    assert f" in {folder}, where commands find this shop" in printed
