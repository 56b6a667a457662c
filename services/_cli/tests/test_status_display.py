"""What `shop up` shows: lines in a pipe, and a screen in a terminal, here a real one."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from contextlib import suppress
from pathlib import Path

import pytest

from shop_cli.local.ports import reserved
from shop_cli.local.processes import Shop
from shop_cli.local.workspace import discover, discover_services
from shop_cli.output.status_display import StatusDisplay

FIRST_SCREEN = """
import sys
from pathlib import Path
from shop_cli.local.processes import Shop
from shop_cli.local.run_file import Run
from shop_cli.local.workspace import default_ports, discover
from shop_cli.output.next_steps import print_next_steps
from shop_cli.output.status_display import StatusDisplay

folder = Path(sys.argv[1])
shop = Shop(discover(), folder, default_ports(discover()))
with StatusDisplay(shop) as display:
    for state in ("starting", "serving"):
        display.update({process.name: state for process in shop})
    addresses = {"storefront": "127.0.0.1:8080"}
    print_next_steps(Run(1, "", addresses, "http://localhost:8090", 32 * "t"), folder)
    display.update({process.name: "not ready: its database does not answer" for process in shop})
"""
MARKUP = re.compile(
    r"\[/?(green|yellow|red|blue|bold)\b[^\]\s]*\]"
)  # whole tags: the name of the folder may be wrapped
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
COLOURS = re.compile(r"\x1b\[[0-9;]*3[0-7]m")


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


def first_screen(folder: Path, columns: int = 100, **environment: str) -> str:
    """Return all that a terminal of so many columns receives."""
    terminal, inner = pty.openpty()
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    inherited = {
        name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "FORCE_COLOR")
    }
    with subprocess.Popen(
        [sys.executable, "-c", FIRST_SCREEN, str(folder)],
        stdin=inner, stdout=inner, stderr=inner, env={**inherited, "TERM": "xterm", **environment},
    ):  # fmt: skip
        os.close(inner)
        received = b""
        with suppress(OSError), os.fdopen(terminal, "rb", buffering=0) as output:  # Linux reports the end as an error
            while part := output.read(65_536):
                received += part
    return received.decode()


@pytest.mark.parametrize("columns", [40, 100])
def test_a_terminal_shows_styled_states_and_whole_links(tmp_path: Path, columns: int) -> None:
    folder = tmp_path / "[red]"  # printed as it is, wherever it is printed
    text = first_screen(folder, columns)
    plain = ESCAPES.sub("", text)
    assert COLOURS.search(text)
    assert MARKUP.findall(plain.replace("[red]", "")) == []
    assert "http://localhost:8090/?token=" + 32 * "t" in plain
    assert [program.name for program in discover() if program.name not in plain] == []


def test_no_color_is_honoured(tmp_path: Path) -> None:
    text = first_screen(tmp_path, NO_COLOR="1")
    assert not COLOURS.search(text)
    assert "The shop is ready." in ESCAPES.sub("", text)


def test_a_terminal_that_cannot_move_its_cursor_gets_lines(tmp_path: Path) -> None:
    text = first_screen(tmp_path, TERM="dumb")
    assert "\x1b" not in text
    for state in ("starting", "serving", "not ready: its database does not answer"):
        assert text.count(f" {state}\r\n") == len(discover())
