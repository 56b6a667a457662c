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
EVERYTHING = {"observability": {"enabled": True, "prometheusRule": {"enabled": True}}}
COMMANDS = {"kubectl", "shop", "date"}


def commands(page: Path) -> list[list[str]]:
    blocks = re.findall(r"^```sh\n(.*?)\n```$", page.read_text(), re.MULTILINE | re.DOTALL)
    return [shlex.split(line) for block in blocks for line in block.splitlines()]


def test_every_alert_has_a_page(rules: list[Any]) -> None:
    alerts = {rule["alert"] for rule in rules if "alert" in rule}
    assert {page.stem for page in PAGES} == alerts


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_has_the_four_sections(page: Path) -> None:
    sections = re.split(r"^## (.+)$", page.read_text(), flags=re.MULTILINE)
    assert page.read_text().startswith(f"# {page.stem}\n")
    assert sections[1::2] == SECTIONS
    assert all(text.strip() for text in sections[2::2])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_of_the_shop_exist(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USER", "eve")  # who settles orders
    for program, *arguments in commands(page):
        assert program in COMMANDS
        if program != "shop":
            continue
        group = typer.main.get_command(app(arguments))
        command: Any = group
        while hasattr(command, "commands"):
            command = command.commands[arguments.pop(0)]
        # Raises for an option or an argument that the command does not have.
        command.make_context(command.name, arguments)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_objects_in_the_commands_are_those_of_the_chart(render: Any, page: Path) -> None:
    manifests = render(EVERYTHING)
    objects = {f"{found['kind'].lower()}/{found['metadata']['name']}" for found in manifests.objects}
    for arguments in commands(page):
        for argument in arguments:
            if re.match(r"(deployment|statefulset|service|cronjob)/", argument):
                assert argument in objects
