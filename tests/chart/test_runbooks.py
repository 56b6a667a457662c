"""Each alert has a runbook, whose commands exist."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer.main

from shop_cli.__main__ import app

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "charts/shop/runbooks").glob("*.md"))
SECTIONS = ["What it means", "How to look", "What to do", "How to see it is over"]
OBSERVABILITY = {"observability": {"enabled": True}}


def commands() -> list[tuple[str, list[str]]]:
    """Return the programs and arguments of all pages."""
    blocks = [
        block
        for page in PAGES
        for block in re.findall(r"^```sh\n(.*?)\n```$", page.read_text(), re.MULTILINE | re.DOTALL)
    ]
    lines = [shlex.split(line) for block in blocks for line in block.splitlines()]
    return [(program, arguments) for program, *arguments in lines]


def test_every_alert_has_a_page_of_four_sections(rules: list[Any]) -> None:
    assert {page.stem for page in PAGES} == {rule["alert"] for rule in rules if "alert" in rule}
    for page in PAGES:
        sections = re.split(r"^## (.+)$", page.read_text(), flags=re.MULTILINE)
        assert sections[0].startswith(f"# {page.stem}\n")
        assert sections[1::2] == SECTIONS, page
        assert all(text.strip() for text in sections[2::2]), page


def test_commands_of_the_shop_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USER", "eve")  # who settles orders
    for program, arguments in commands():
        assert program in {"kubectl", "shop", "date"}
        if program == "shop":
            command: Any = typer.main.get_command(app(arguments))
            while hasattr(command, "commands"):
                command = command.commands[arguments.pop(0)]
            # Raises for an option or an argument that the command does not have.
            command.make_context(command.name, arguments)


def test_objects_in_the_commands_are_those_of_the_chart(render: Any) -> None:
    objects = {f"{found['kind'].lower()}/{found['metadata']['name']}" for found in render(OBSERVABILITY).objects}
    named = {argument for _, arguments in commands() for argument in arguments}
    workloads = re.compile(r"(deployment|statefulset|service|cronjob)/")
    assert {argument for argument in named if workloads.match(argument)} <= objects
