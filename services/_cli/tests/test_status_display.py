import re
from pathlib import Path

import pytest

from shop_cli.local.ports import reserved
from shop_cli.local.processes import Shop
from shop_cli.local.workspace import discover_services
from shop_cli.output.status_display import StatusDisplay


def test_each_change_is_printed_once_and_so_is_a_restart_between_two_updates(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = discover_services()[0]
    with reserved(1) as [port]:
        shop = Shop([program], tmp_path, {program.name: port})
        with StatusDisplay(shop) as display:
            for state in ("starting", "serving", "serving"):
                display.update({program.name: state})
            shop[program.name].starts += 1
            display.update({program.name: "serving"})
    assert re.findall(r"\w+$", capsys.readouterr().out, re.MULTILINE) == ["starting", "serving", "serving"]
