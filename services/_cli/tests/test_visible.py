"""Text from customers and services cannot control a terminal or reorder a page's text."""

import io
import json
from collections.abc import Callable

import pytest
from rich.text import Text
from rich.tree import Tree

from shop_cli.control_room.pages import templates
from shop_cli.output.printing import SafeConsole, console, print_table
from shop_cli.output.visible import visible

HOSTILE = [chr(code) for code in (0x1B, 0x7F, 0x85, 0x9B, 0x9D, 0x61C, 0x200F, 0x2028, 0x202A, 0x202E, 0x2066, 0x2069)]
Show = Callable[[str], object]


def in_tree(text: str) -> Tree:
    tree = Tree(Text(text))
    tree.add(text)
    return tree


@pytest.mark.parametrize("show", [str, Text, in_tree])
@pytest.mark.parametrize("is_terminal", [False, True])
def test_nothing_hostile_reaches_a_terminal(show: Show, is_terminal: bool) -> None:
    output = io.StringIO()
    console = SafeConsole(file=output, width=200, force_terminal=is_terminal, color_system=None, markup=False)
    text = "a" + "b".join(HOSTILE) + "c"
    console.print(show(text), markup=False)
    if show is str:
        console.out(text)
    assert not set(output.getvalue()) & set(HOSTILE)
    assert "\\u009bb" in output.getvalue()


def test_a_table_has_room_for_escapes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(console, "width", 200)
    print_table(["Name", "Quantity "], [["".join(HOSTILE), "1"]])
    assert visible("".join(HOSTILE)) in capsys.readouterr().out


def test_escaped_json_is_the_same_json() -> None:
    text = json.dumps({"name": "".join(HOSTILE)}, ensure_ascii=False)
    assert json.loads(visible(text)) == json.loads(text)
    assert visible(text).isascii()


def test_lines_tabs_and_letters_of_any_script_stay() -> None:
    text = "a\tb\nü שלום 你好 👩‍👧"
    assert visible(text) == text


@pytest.mark.parametrize("character", HOSTILE)
def test_nothing_hostile_reaches_the_control_room_s_pages(character: str) -> None:
    page = templates({}).get_template("error.html").render(reason="R", message=f"<b>{character}")
    assert character not in page
    assert f"&lt;b&gt;\\u{ord(character):04x}" in page
