"""The recipe in services/adding-a-service.md works, step by step, in a copy of the repository."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RECIPE = (ROOT / "services/adding-a-service.md").read_text().partition("\n## ")[0]
# What the recipe's `make sync` does, `Copy.install` does without downloads; the others are no steps.
COMMANDS = sorted(set(re.findall(r"`(make [a-z-]+)`", RECIPE)) - {"make sync", "make test", "make up"})
# Everything that lists services.
TESTS = [
    "services/stock/tests",
    *(f"tests/repository/test_{name}.py" for name in ("docs", "layout")),
    "tests/chart/test_delivery_files.py",
]
OPTIONS = ("-q", "-n", "0", "-p", "no:cacheprovider", "--basetemp=../tests")
pytestmark = pytest.mark.timeout(900)
# What makes a subprocess part of this pytest run instead of one of its own, or requires programs that the copy lacks.
OF_THIS_RUN = re.compile(r"PYTEST_|COV_|REQUIRE_")


class Copy:
    """A copy of the repository with its own interpreter, whose packages are those of the copy."""

    def __init__(self, folder: Path) -> None:
        command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
        for path in filter(os.path.isfile, subprocess.check_output(command, cwd=ROOT, text=True).splitlines()):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / path, folder / path)
        self.folder = folder

    def run(self, *command: str | Path) -> None:
        """Run a command in the copy; fail with its output if it fails."""
        environment = {name: value for name, value in os.environ.items() if not OF_THIS_RUN.match(name)}
        environment["PATH"] = f"{self.folder}/.venv/bin:{Path(sys.executable).parent}:{environment['PATH']}"
        ended = subprocess.run(
            command, cwd=self.folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
        )
        assert ended.returncode == 0, ended.stdout.decode()

    def follow_recipe(self) -> None:
        """Write the code blocks to the files that the texts above them name: the whole, or below a line."""
        texts = re.split(r"^```\w+\n(.*?)^```\n", RECIPE, flags=re.DOTALL | re.MULTILINE)
        for text, code in zip(texts[::2], texts[1::2], strict=False):
            found = re.search(r"(?:below (?:the first )?`(?P<anchor>[^`]+)` in\s)?`(?P<path>[^`]+)`:\s*$", text)
            assert found, f"no file is named above:\n{code}"
            file = self.folder / found["path"]
            file.parent.mkdir(parents=True, exist_ok=True)
            lines = file.read_text().splitlines(keepends=True) if found["anchor"] else []
            start = next((at for at, line in enumerate(lines, 1) if line.strip().startswith(found["anchor"])), 0)
            assert start or not file.exists()
            file.write_text("".join([*lines[:start], code, *lines[start:]]))
        for path in re.findall(r"an empty `([^`]+)`", RECIPE):
            (self.folder / path).touch()

    def install(self) -> None:
        """Make .venv: the copy's sources first, then this environment's packages without its editable installs."""
        self.run(sys.executable, "-m", "venv", "--without-pip", ".venv")
        sources = [*self.folder.glob("*/src"), *self.folder.glob("*/*/src"), self.folder / "protos/gen"]
        (packages,) = self.folder.glob(".venv/lib/python*/site-packages")
        (packages / "copy.pth").write_text("\n".join([*map(str, sources), sysconfig.get_path("purelib")]) + "\n")
        (self.folder / ".venv/bin/uv").symlink_to(Path(sys.executable).with_name("uv"))
        (self.folder / ".venv/.shop").touch()  # the Makefile's mark of what is installed


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    """A copy in which the recipe has been followed."""
    made = Copy(tmp_path_factory.mktemp("recipe") / "shop")
    made.follow_recipe()
    made.install()
    for command in COMMANDS:
        made.run(*command.split())
    made.run("git", "init", "--quiet")
    made.run("git", "add", "--all")
    return made


def test_the_new_service_passes_its_own_tests_and_those_of_everything_that_lists_services(copy: Copy) -> None:
    # A name with `stock` is a parameter; without it in the files below, a test sees all services at once.
    copy.run("python", "-m", "pytest", *OPTIONS, *TESTS, "-k", "stock or layout or docs or delivery_files")


@pytest.mark.long
def test_the_new_service_runs_in_a_shop(copy: Copy) -> None:
    copy.run("python", "-m", "pytest", *OPTIONS, "tests/system/test_fuzz.py", "-k", "stock")


@pytest.mark.long
def test_the_new_service_passes_the_linters(copy: Copy) -> None:
    copy.run("ruff", "check", "services")
    copy.run("ruff", "format", "--check", "services/stock")
    copy.run("yamllint", "--strict", "charts/shop/values.yaml", "skaffold.yaml")
    copy.run("check-jsonschema", "--schemafile", "tests/chart/schemas/skaffold.json", "skaffold.yaml")
    copy.run("buf", "lint", "protos")
    copy.run("buf", "format", "--diff", "--exit-code", "protos")
    copy.run("python", "tests/repository/import_contracts.py")
    copy.run("python", "-m", "mypy", "services/stock/src", "services/stock/tests")


@pytest.mark.parametrize(
    ("python", "missing"), [("python3", "install python3-venv"), ("no-python", "install no-python no-python-venv")]
)
def test_set_up_without_python_or_its_venv_names_the_packages(tmp_path: Path, python: str, missing: str) -> None:
    # As in Debian, where a Python without the package python3-venv has no ensurepip.
    (tmp_path / "ensurepip.py").write_text("raise ModuleNotFoundError")
    ran = subprocess.run(
        ["make", f"VENV={tmp_path}/.venv", f"{tmp_path}/.venv/bin/uv", f"PYTHON={python}"],
        cwd=ROOT, env={"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    line, *rest = ran.stderr.splitlines()
    assert missing in line
    assert [line for line in rest if not line.startswith("make: ***")] == []
