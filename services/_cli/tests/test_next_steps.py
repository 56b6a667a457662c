from pathlib import Path

import pytest

from shop_cli.local.run_file import Run
from shop_cli.output.next_steps import print_next_steps
from shop_cli.output.printing import console


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
