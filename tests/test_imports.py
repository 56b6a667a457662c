"""Services import only what they need: each package costs memory in every pod, and time at every start."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = sorted(package.name for package in (ROOT / "services").glob("*/src/*_service"))
# Migrations run in processes of their own; the SDK is imported when telemetry is exported.
NOT_NEEDED = {"alembic", "opentelemetry.sdk", "psycopg", "pydantic", "sqlalchemy"}


def imports(package: str) -> set[str]:
    """Return the modules of a service that is about to serve, with its defaults."""
    program = f"import sys, {package}.__main__; print(*sys.modules)"
    return set(
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    )


@pytest.mark.parametrize("package", PACKAGES)
def test_a_service_imports_nothing_heavy(package: str) -> None:
    assert imports(package) & NOT_NEEDED == set()
