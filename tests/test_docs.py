"""The documents say what is true: their links lead somewhere, their picture is the chart's, their commands exist."""

import re
import subprocess
from itertools import product
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent
DOCUMENTS = [
    ROOT / path
    for path in subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
]
README = (ROOT / "README.md").read_text()


def named(document: Path) -> str:
    return str(document.relative_to(ROOT))


def links_of(document: Path) -> list[str]:
    """The targets of a document's links that are files of this repository."""
    targets = re.findall(r"\]\(([^)#\s]+)", document.read_text())
    return [target for target in targets if "://" not in target]


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def edges(diagram: str) -> set[tuple[str, str]]:
    """The arrows of a mermaid graph."""
    found = set()
    for line in diagram.splitlines():
        left, arrow, right = line.partition("-->")
        if arrow:
            found |= set(product(re.findall(r"[a-z-]+(?=\(|\s|$)", left), re.findall(r"[a-z-]+", right)))
    return found


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_links_lead_to_files(document: Path) -> None:
    assert [target for target in links_of(document) if not (document.parent / target).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_make_commands_exist(document: Path) -> None:
    text = document.read_text()
    code = "\n".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL) + re.findall(r"`(make [^`]+)`", text))
    asked = {target for line in re.findall(r"^\s*make ([a-z -]+)", code, re.MULTILINE) for target in line.split()}
    assert asked <= make_targets()


def test_the_readme_draws_who_calls_whom() -> None:
    values = yaml.safe_load((ROOT / "charts/shop/values.yaml").read_text())
    calls = {
        (caller, callee) for caller, entry in values["services"].items() for callee in (entry or {}).get("calls", [])
    }
    drawn = edges(README.partition("```mermaid")[2].partition("```")[0])
    assert {edge for edge in drawn if edge[0] not in ("client", "staff", "your")} == calls
