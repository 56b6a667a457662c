"""One shop of real processes per database and test process; each test configures it before use."""

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from shop_kit.loops import share_loop
from shop_lab.world.fault_testbed import FaultTestbed, fault_testbed


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    share_loop(items, Path(__file__).parent)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def sqlite_testbed(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[FaultTestbed]:
    """Two checkouts on one SQLite file."""
    async with fault_testbed(tmp_path_factory.mktemp("sqlite"), "sqlite") as testbed:
        yield testbed


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def postgres_testbed(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[FaultTestbed]:
    """Two checkouts on one PostgreSQL database."""
    async with fault_testbed(tmp_path_factory.mktemp("postgres"), "postgres") as testbed:
        yield testbed


@pytest.fixture
def testbed(sqlite_testbed: FaultTestbed) -> FaultTestbed:
    return sqlite_testbed


@pytest.fixture
def run_prove(tmp_path: Path) -> Callable[..., tuple[int, str, dict[str, Any]]]:
    """A function that runs `shop prove` with options, and returns the exit status, the output and the verdict."""

    def run(*options: str) -> tuple[int, str, dict[str, Any]]:
        file = tmp_path / "verdict.json"
        command = [sys.executable, "-m", "shop_cli", "prove", "--json", str(file), *options]
        completed = subprocess.run(command, capture_output=True, text=True, check=False)
        if not file.exists() or not file.stat().st_size:
            raise RuntimeError(completed.stdout + completed.stderr)
        return completed.returncode, completed.stdout, json.loads(file.read_text())

    return run


@pytest.fixture(scope="session")
def without_faults() -> list[str]:
    """The options for a short run without faults."""
    kinds = ("kills", "pauses", "stalls", "network", "replaced", "relay", "late", "disks", "operators")
    return ["--orders", "120", *(argument for kind in kinds for argument in (f"--{kind}", "0"))]
