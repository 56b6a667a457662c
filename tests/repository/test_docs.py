"""Documents are consistent: links, commands and settings exist, the diagram is the chart's, decisions are indexed."""

import dataclasses
import importlib
import re
import subprocess
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
import yaml

from chassis.settings import ServiceSettings

ROOT = Path(__file__).parents[2]
LISTED = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
DOCUMENTS = {
    ROOT / path: (ROOT / path).read_text() for path in subprocess.check_output(LISTED, cwd=ROOT).decode().split()
}
DECISIONS = [document for document in DOCUMENTS if document.parent.name == "decisions"]


def links_of(document: Path, text: str) -> Iterator[tuple[Path, str]]:
    """Yield the file and the anchor of each link to a file of this repository, but for those in code blocks."""
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", prose):
        if "://" not in target:
            yield (document.parent / target).resolve() if target else document, anchor


def anchors_of(document: Path) -> set[str]:
    """Return the anchors that GitHub gives to a document's headings."""
    headings = re.findall(r"^#+ (.+)$", DOCUMENTS[document], re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_lead_to_files_and_headings() -> None:
    links = ((document, *link) for document, text in DOCUMENTS.items() for link in links_of(document, text))
    broken = [
        f"{document}: {path}#{anchor}"
        for document, path, anchor in links
        if not path.exists() or (anchor and path in DOCUMENTS and anchor not in anchors_of(path))
    ]
    assert broken == []


def test_make_commands_exist() -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    text = "\n".join(DOCUMENTS.values())
    code = "\n".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL) + re.findall(r"`(make [^`]+)`", text))
    assert {name for line in re.findall(r"^\s*make ([a-z -]+)", code, re.MULTILINE) for name in line.split()} <= targets


def test_the_readme_draws_which_service_calls_which_and_stores_where() -> None:
    services = yaml.safe_load((ROOT / "charts/shop/values.yaml").read_text())["services"]
    expected = {(name, entry["store"]) for name, entry in services.items() if "store" in entry}
    for name, entry in services.items():
        expected |= {(name, callee) for callee in (*entry.get("calls", ()), *entry.get("internalCalls", ()))}
    drawn: set[tuple[str, str]] = set()
    diagram = DOCUMENTS[ROOT / "README.md"].partition("```mermaid")[2].partition("```")[0]
    for line in re.sub(r"\[.*?\]|\(\[.*?\]\)", "", diagram).splitlines():
        left, arrow, right = line.partition("-->")
        if arrow:
            drawn |= set(product(re.findall(r"[a-z-]+(?=\(|\s|$)", left), re.findall(r"[a-z-]+", right)))
    assert {edge for edge in drawn if edge[0] in services} == expected


def test_the_index_lists_every_decision_once() -> None:
    contributing = ROOT / "CONTRIBUTING.md"
    index = DOCUMENTS[contributing].partition("\n## Decisions\n")[2].partition("\n## ")[0]
    assert sorted(path for path, _ in links_of(contributing, index)) == sorted(DECISIONS)


@pytest.mark.parametrize("note", DECISIONS, ids=lambda note: str(note.relative_to(ROOT)))
def test_a_decision_is_short_and_names_what_enforces_it(note: Path) -> None:
    text = DOCUMENTS[note]
    assert re.findall(r"^## (.*)", text, re.MULTILINE) == ["Context", "Decision", "Consequences", "Enforced by"]
    assert len(text.splitlines()) <= 40
    named = re.findall(r"`([\w./-]+/[\w./-]+)`", text.partition("\n## Enforced by\n")[2])
    assert named
    assert [path for path in named if not any((folder / path).exists() for folder in (ROOT, note.parents[1]))] == []


def test_decisions_that_the_code_names_exist() -> None:
    command = ["git", "grep", "-ohE", r"decisions/[0-9]{4}-[a-z-]+\.md", "--", "*.py"]
    listed = subprocess.check_output(command, cwd=ROOT, text=True).split()
    assert {Path(name).name for name in listed} <= {note.name for note in DECISIONS}


# Without the code blocks: the recipe for a new service shows a row of the table.
README = re.sub(r"^```.*?^```$", "", (ROOT / "services/README.md").read_text(), flags=re.DOTALL | re.MULTILINE)
ROWS = [[cell.strip() for cell in line.split("|")] for line in re.findall(r"^\|(.+)\|$", README, re.MULTILINE)]
PACKAGES = sorted(package.name for package in (ROOT / "services").glob("*/src/*_service"))
COMMON = {field.name.upper() for field in dataclasses.fields(ServiceSettings)}


def variables(cell: str) -> set[str]:
    return set(re.findall(r"`([A-Z][A-Z0-9_]+)`", cell))


def documented(service: str) -> set[str]:
    """Return the variables in the rows of a service, of which only the first names it."""
    found, current = set(), ""
    for row in ROWS:
        if len(row) == 4:
            current = row[0] or current
            found |= variables(row[1]) if current == service else set()
    return found


def test_the_settings_of_all_services_are_documented() -> None:
    common = set().union(*(variables(row[0]) for row in ROWS if len(row) == 3))
    assert {name for name in common if not name.startswith("OTEL_")} == COMMON


@pytest.mark.parametrize("package", PACKAGES)
def test_the_settings_of_one_service_are_documented(package: str) -> None:
    settings = importlib.import_module(f"{package}.__main__").Settings
    own = {field.name.upper() for field in dataclasses.fields(settings)} - COMMON
    assert documented(package.removesuffix("_service").replace("_", "-")) == own
