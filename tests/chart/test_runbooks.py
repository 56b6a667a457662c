"""Each alert has a runbook, whose commands name objects of the chart; tests/system has the commands themselves."""

import re
import shlex
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "charts/shop/runbooks").glob("*.md"))
SECTIONS = ["What it means", "How to look", "What to do", "How to see it is over"]
OBSERVABILITY = {"observability": {"enabled": True}}


def arguments() -> set[str]:
    """Return the words of the commands of all pages."""
    blocks = [
        block
        for page in PAGES
        for block in re.findall(r"^```sh\n(.*?)\n```$", page.read_text(), re.MULTILINE | re.DOTALL)
    ]
    return {word for block in blocks for word in shlex.split(block)}


def test_every_alert_has_a_page_of_four_sections(rules: list[Any]) -> None:
    assert {page.stem for page in PAGES} == {rule["alert"] for rule in rules if "alert" in rule}
    for page in PAGES:
        sections = re.split(r"^## (.+)$", page.read_text(), flags=re.MULTILINE)
        assert sections[0].startswith(f"# {page.stem}\n")
        assert sections[1::2] == SECTIONS, page
        assert all(text.strip() for text in sections[2::2]), page


def test_objects_in_the_commands_are_those_of_the_chart(render: Any) -> None:
    objects = {f"{found['kind'].lower()}/{found['metadata']['name']}" for found in render(OBSERVABILITY).objects}
    workloads = re.compile(r"(deployment|statefulset|service|cronjob)/")
    assert {argument for argument in arguments() if workloads.match(argument)} <= objects
