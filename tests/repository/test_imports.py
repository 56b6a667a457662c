"""Services import only what they need: each package costs memory in every pod, and time at every start."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from shop_kit.running_shop import running_process

ROOT = Path(__file__).parents[2]
PROC = Path("/proc")
PACKAGES = sorted(package.name for package in (ROOT / "services").glob("*/src/*_service"))
PEERS = ("CART", "PRODUCT_CATALOG", "SHIPPING", "CURRENCY", "PAYMENT", "EMAIL")
# Migrations run in processes of their own. Clients of other stores, and the SDK, are imported when set.
NOT_NEEDED = {
    "alembic",
    "babel",
    "cryptography",
    "httpx2",
    "opentelemetry.sdk",
    "psycopg",
    "pydantic",
    "redis",
    "sqlalchemy",
}

IMPORTS = """
import sys
for package in sys.argv[1:]:
    __import__(f"{package}.__main__")
    print(package, *sys.modules)
"""


def test_a_service_imports_nothing_heavy() -> None:
    """All are imported one after the other; the storefront, last, may import an HTTP client for traces of orders."""
    assert PACKAGES[-1] == "storefront_service"
    imported = subprocess.run([sys.executable, "-c", IMPORTS, *PACKAGES], capture_output=True, text=True, check=True)
    lines = [line.split() for line in imported.stdout.splitlines()]
    found = {package: NOT_NEEDED.intersection(modules) for package, *modules in lines}
    assert found == {package: set() for package in PACKAGES} | {"storefront_service": {"httpx2"}}


@pytest.mark.parametrize("service", ["checkout", "email", "payment", "shipping"])
async def test_the_process_that_serves_has_not_migrated_its_file(service: str, tmp_path: Path) -> None:
    peers = {f"{peer}_ADDR": "127.0.0.1:1" for peer in PEERS}
    async with running_process(service, tmp_path, SMTP_URL="smtp://127.0.0.1:1", **peers) as process:
        loaded = (PROC / str(process.pid) / "maps").read_text()
    assert [name for name in ("psycopg", "pydantic_core", "sqlalchemy") if name in loaded] == []
    assert (tmp_path / ".shop" / f"{service}.db").exists()


@pytest.mark.parametrize(
    ("folder", "packages"),
    [
        ("services/cart", set()),
        ("services/load-generator", {"locust", "gevent", "flask"}),
        ("employee-api", {"sqlmodel", "pydantic", "greenlet", "tzdata"}),
    ],
)
def test_a_package_that_one_image_needs_is_in_that_image_alone(tmp_path: Path, folder: str, packages: set[str]) -> None:
    dockerfile = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    commands = [found.replace(" /", f" {tmp_path}/") for found in re.findall(r"\buv export[^&\n]*", dockerfile)]
    subprocess.run(["sh", "-ec", "\n".join(commands)], cwd=ROOT, env={**os.environ, "FOLDER": folder}, check=True)
    exported = [(tmp_path / name).read_text() for name in ("shared.txt", "own.txt")]
    shared, own = (set(re.findall(r"^([a-z0-9._-]+)==", text, re.MULTILINE)) for text in exported)
    assert packages <= own
    assert bool(own) == bool(packages)
    assert own & (shared | {"pytest"}) == set()
