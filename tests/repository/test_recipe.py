"""The recipe in services/adding-a-service.md works, step by step, in a copy of the repository."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RECIPE = (ROOT / "services/adding-a-service.md").read_text().partition("\n## ")[0]
# What the recipe's `make sync` does, `Copy.install` does without downloads; the others are no steps.
COMMANDS = sorted(set(re.findall(r"`(make [a-z-]+)`", RECIPE)) - {"make sync", "make test", "make up"})
# Files of tests/chart whose tests a new service does not change.
OF_NO_SERVICE = (
    *("alertmanager", "bring_your_own", "environment", "extensions", "null_values", "production_tls"),
    *("refused_values", "replace_hmac_key", "storefront", "umbrella"),
)
# Each test is a whole run of pytest or of the linters, in which single tests have the usual limit.
pytestmark = pytest.mark.timeout(600)
# What makes a subprocess part of this pytest run instead of one of its own, or requires programs that the copy lacks.
OF_THIS_RUN = re.compile(r"PYTEST_|COV_|REQUIRE_")


@dataclass(frozen=True)
class Block:
    """A code block of the recipe.

    Attributes:
        path: the file that the text above the block names.
        anchor: the start of the line below which the block is inserted; empty if the block is the whole file.
        code: the lines of the block.
    """

    path: str
    anchor: str
    code: str


def blocks() -> Iterator[Block]:
    texts = re.split(r"^```\w+\n(.*?)^```\n", RECIPE, flags=re.DOTALL | re.MULTILINE)
    for text, code in zip(texts[::2], texts[1::2], strict=False):
        found = re.search(r"(?:below (?:the first )?`(?P<anchor>[^`]+)` in\s)?`(?P<path>[^`]+)`:\s*$", text)
        assert found, f"no file is named above:\n{code}"
        yield Block(found["path"], found["anchor"] or "", code)


@dataclass(frozen=True)
class Copy:
    """A copy of the repository with its own interpreter, whose packages are those of the copy."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / ".venv/bin/python"

    def run(self, *command: str | Path) -> None:
        """Run a command in the copy; fail with its output if it fails."""
        environment = {name: value for name, value in os.environ.items() if not OF_THIS_RUN.match(name)}
        environment["PATH"] = f"{self.python.parent}:{Path(sys.executable).parent}:{environment['PATH']}"
        ended = subprocess.run(
            command, cwd=self.folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
        )
        assert ended.returncode == 0, ended.stdout.decode()

    def run_tests(self, *options: str) -> None:
        temporary = self.folder.parent / "tmp"
        self.run(self.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={temporary}", *options)

    def apply(self, block: Block) -> None:
        file = self.folder / block.path
        if not block.anchor:
            assert not file.exists()
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.code)
            return
        lines = file.read_text().splitlines(keepends=True)
        at = next(number for number, line in enumerate(lines) if line.strip().startswith(block.anchor))
        file.write_text("".join([*lines[: at + 1], block.code, *lines[at + 1 :]]))

    def install(self) -> None:
        """Make .venv: the copy's sources first, then this environment's packages without its editable installs."""
        self.run(sys.executable, "-m", "venv", "--without-pip", ".venv")
        sources = [*self.folder.glob("services/*/src"), self.folder / "employee-api/src", self.folder / "protos/gen"]
        sources += self.folder.glob("tests/*/src")
        (packages,) = self.folder.glob(".venv/lib/python*/site-packages")
        paths = [*map(str, sources), sysconfig.get_path("purelib")]
        (packages / "copy.pth").write_text("\n".join(paths) + "\n")


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    """A copy in which the recipe has been followed."""
    made = Copy(tmp_path_factory.mktemp("recipe") / "shop")
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.check_output(command, cwd=ROOT, text=True).splitlines()
    for path in filter(os.path.isfile, (ROOT / name for name in listed)):
        target = made.folder / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    for block in blocks():
        made.apply(block)
    for path in re.findall(r"an empty `([^`]+)`", RECIPE):
        (made.folder / path).touch()
    made.install()
    for command in COMMANDS:
        made.run(*command.split())
    made.run("git", "init", "--quiet")
    made.run("git", "add", "--all")
    return made


def test_the_new_service_passes_its_own_tests_and_every_one_of_layout_chart_and_contract(copy: Copy) -> None:
    # Those that have the services as parameters run for the new one: in a running shop with health, reflection, smoke
    # call and fuzzing. The others see all services at once, but for imports. The copy is not set up by `make setup`.
    copy.run_tests(
        *("services/stock", "services/_cli/tests/test_workspace.py", "tests/repository", "tests/chart", "tests/system"),
        *(f"--ignore=tests/chart/test_{name}.py" for name in OF_NO_SERVICE),
        *("-n", "2", "--dist", "loadfile", "--ignore", "tests/repository/test_recipe.py", "-k"),
        "stock or workspace or contract or chart or (repository and not test_imports and not installed_by_set_up)",
    )


def test_the_new_service_passes_the_linters(copy: Copy) -> None:
    copy.run("ruff", "check", "services")
    copy.run("ruff", "format", "--check", "services/stock")
    copy.run("yamllint", "--strict", "charts/shop/values.yaml", "skaffold.yaml")
    copy.run("check-jsonschema", "--schemafile", "tests/chart/schemas/skaffold.json", "skaffold.yaml")
    copy.run("buf", "lint", "protos")
    copy.run("buf", "format", "--diff", "--exit-code", "protos")
    copy.run(copy.python, "tests/repository/import_contracts.py")
    copy.run(copy.python, "-m", "mypy", "services/stock/src")
    copy.run(copy.python, "-m", "mypy", "--scripts-are-modules", *(copy.folder / "services/stock/tests").glob("*.py"))
