"""Services import only what they need: each package costs memory in every pod, and time at every start."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = sorted(package.name for package in (ROOT / "services").glob("*/src/*_service"))
PEERS = ("CART", "PRODUCT_CATALOG", "SHIPPING", "CURRENCY", "PAYMENT", "EMAIL")
MOST_LOCAL_IMPORTS = 12
# Migrations run in processes of their own. Clients of relays and other stores, and the SDK, are imported when set.
NOT_NEEDED = {
    "aiosmtplib",
    "alembic",
    "babel",
    "httpx2",
    "opentelemetry.sdk",
    "psycopg",
    "pydantic",
    "redis",
    "sqlalchemy",
}

# Its pages show traces of orders, which it fetches by HTTP.
ALLOWED = {"storefront_service": {"httpx2"}}


def imports(package: str) -> set[str]:
    """Return the modules of a service that is about to serve, with its defaults."""
    program = f"import sys, {package}.__main__; print(*sys.modules)"
    return set(
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    )


@pytest.mark.parametrize("package", PACKAGES)
def test_a_service_imports_nothing_heavy(package: str) -> None:
    assert imports(package) & NOT_NEEDED == ALLOWED.get(package, set())


@pytest.mark.parametrize("package", ["checkout_service", "email_service", "payment_service", "shipping_service"])
def test_the_process_that_serves_has_not_migrated_its_file(package: str, tmp_path: Path) -> None:
    own = {"HMAC_KEY": "k" * 32, "SMTP_URL": "smtp://127.0.0.1:1", **{f"{peer}_ADDR": "127.0.0.1:1" for peer in PEERS}}
    local = {"HOST": "127.0.0.1", "PORT": "0", "INTERNAL_PORT": "0", "DRAIN_SECONDS": "0", "PATH": os.environ["PATH"]}
    command = [sys.executable, "-m", package]
    with subprocess.Popen(command, cwd=tmp_path, env={**own, **local}, stdout=subprocess.PIPE) as process:
        assert process.stdout
        serving = any(b'"serving"' in line for line in process.stdout)
        loaded = Path(f"/proc/{process.pid}/maps").read_text()
        process.terminate()
    assert serving
    assert [name for name in ("psycopg", "pydantic_core", "sqlalchemy") if name in loaded] == []
    assert [*tmp_path.glob(".shop/*.db")]


def found_by_ruff(rule: str) -> list[str]:
    """Return where a rule is broken in any package, whatever comments except from it."""
    sources = [
        str(path) for pattern in ("services/*/src", "employee-api/src", "tests/*/src") for path in ROOT.glob(pattern)
    ]
    options = ("--isolated", "--ignore-noqa", "--select", rule, "--output-format", "concise", "--quiet")
    command = [sys.executable, "-m", "ruff", "check", *options, *sources]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()


def test_no_private_attribute_is_used_outside_of_its_class() -> None:
    assert found_by_ruff("SLF001") == []


def test_few_imports_are_local() -> None:
    # A reader looks for imports at the top of a file: the exceptions are optional extras, which cost memory or time.
    assert len(found_by_ruff("PLC0415")) <= MOST_LOCAL_IMPORTS
