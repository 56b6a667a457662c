"""The tables of settings in services/README.md list every setting of every service, and no others."""

import dataclasses
import importlib
import re
from pathlib import Path

import pytest

from chassis.settings import ServiceSettings

ROOT = Path(__file__).parents[2]
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
