"""The documents are consistent: links and commands exist, diagrams match the chart, decisions and terms are indexed."""

import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
LISTED = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
DOCUMENTS = [ROOT / path for path in subprocess.check_output(LISTED, cwd=ROOT, text=True).split()]
READMES = [document for document in DOCUMENTS if document.name == "README.md"]
README = (ROOT / "README.md").read_text()
DECISIONS = [document for document in DOCUMENTS if document.parent.name == "decisions"]
WITH_GLOSSARY = ROOT / "services/README.md"


def relative_path(document: Path) -> str:
    return str(document.relative_to(ROOT))


def links_of(document: Path, text: str) -> Iterator[tuple[Path, str]]:
    """Yield the file and the anchor of each link to a file of this repository, but for those in code blocks."""
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", prose):
        if "://" not in target:
            yield (document.parent / target).resolve() if target else document, anchor


def anchors_of(document: Path) -> set[str]:
    """Return the anchors that GitHub gives to a document's headings."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def edges(diagram: str) -> set[tuple[str, str]]:
    """Return the arrows of a mermaid graph."""
    found = set()
    for line in re.sub(r"\[.*?\]|\(\[.*?\]\)", "", diagram).splitlines():
        left, arrow, right = line.partition("-->")
        if arrow:
            found |= set(product(re.findall(r"[a-z-]+(?=\(|\s|$)", left), re.findall(r"[a-z-]+", right)))
    return found


@pytest.mark.parametrize("document", DOCUMENTS, ids=relative_path)
def test_links_lead_to_files_and_headings(document: Path) -> None:
    broken = [
        f"{path}#{anchor}"
        for path, anchor in links_of(document, document.read_text())
        if not path.exists() or (anchor and path.suffix == ".md" and anchor not in anchors_of(path))
    ]
    assert broken == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=relative_path)
def test_make_commands_exist(document: Path) -> None:
    text = document.read_text()
    code = "\n".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL) + re.findall(r"`(make [^`]+)`", text))
    named = {target for line in re.findall(r"^\s*make ([a-z -]+)", code, re.MULTILINE) for target in line.split()}
    assert named <= make_targets()


def test_programs_that_documents_run_are_installed_by_set_up() -> None:
    text = "\n".join(document.read_text() for document in DOCUMENTS)
    named = set(re.findall(r"(?:^|`)(python|pytest|shop|uvx?)(?= )", text, re.MULTILINE))
    assert named >= {"python", "shop", "uvx"}
    assert [name for name in named if not Path(sys.executable).with_name(name).exists()] == []
    assert "`. .venv/bin/activate`" in (ROOT / "CONTRIBUTING.md").read_text()


def test_the_readme_draws_which_service_calls_which_and_stores_where() -> None:
    services = yaml.safe_load((ROOT / "charts/shop/values.yaml").read_text())["services"]
    expected = {(name, entry["store"]) for name, entry in services.items() if "store" in entry}
    for name, entry in services.items():
        expected |= {(name, callee) for callee in (*entry.get("calls", ()), *entry.get("internalCalls", ()))}
    drawn = edges(README.partition("```mermaid")[2].partition("```")[0])
    assert {edge for edge in drawn if edge[0] in services} == expected


def test_the_index_lists_every_decision_once() -> None:
    contributing = ROOT / "CONTRIBUTING.md"
    index = contributing.read_text().partition("\n## Decisions\n")[2].partition("\n## ")[0]
    assert sorted(path for path, _ in links_of(contributing, index)) == sorted(DECISIONS)


@pytest.mark.parametrize("note", DECISIONS, ids=relative_path)
def test_a_decision_has_four_parts_on_at_most_40_lines(note: Path) -> None:
    lines = note.read_text().splitlines()
    headings = [line.removeprefix("## ") for line in lines if line.startswith("## ")]
    assert headings == ["Context", "Decision", "Consequences", "Enforced by"]
    assert len(lines) <= 40


@pytest.mark.parametrize("note", DECISIONS, ids=relative_path)
def test_a_decision_names_what_enforces_it(note: Path) -> None:
    named = re.findall(r"`([\w./-]+/[\w./-]+)`", note.read_text().partition("\n## Enforced by\n")[2])
    folders = (ROOT, note.parents[1])
    assert named
    assert [path for path in named if not any((folder / path).exists() for folder in folders)] == []


def test_decisions_that_the_code_names_exist() -> None:
    command = ["git", "grep", "-ohE", r"decisions/[0-9]{4}-[a-z-]+\.md", "--", "*.py"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert {Path(name).name for name in listed} <= {note.name for note in DECISIONS}


@pytest.mark.parametrize("readme", [readme for readme in READMES if readme != WITH_GLOSSARY], ids=relative_path)
def test_a_readme_links_to_the_glossary(readme: Path) -> None:
    linked = {f"{relative_path(path)}#{anchor}" for path, anchor in links_of(readme, readme.read_text())}
    assert "services/README.md#glossary" in linked
