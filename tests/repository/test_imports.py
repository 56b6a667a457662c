"""Services import only what they need: each package costs memory in every pod, and time at every start."""

import os
import re
import subprocess
import sys
import tomllib
from functools import cache
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = sorted(package.name for package in (ROOT / "services").glob("*/src/*_service"))
PEERS = ("CART", "PRODUCT_CATALOG", "SHIPPING", "CURRENCY", "PAYMENT", "EMAIL")
# Migrations run in processes of their own. Clients of relays and other stores, and the SDK, are imported when set.
NOT_NEEDED = {
    "aiosmtplib",
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


# The API's engine and the certificate authority, whose images have packages of their own.
NOT_IN_SERVICES = {"chassis.sql.engine", "chassis.tls.authority", "chassis.tls.renewal"}
IMPORT_EVERYTHING = """
import importlib, pkgutil, sys

package, left_out, missing = (argument.split(",") for argument in sys.argv[1:])


class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in missing:
            raise ModuleNotFoundError(name)


sys.meta_path.insert(0, Missing())
root = importlib.import_module(package[0])
for module in pkgutil.walk_packages(root.__path__, f"{root.__name__}."):
    if ".migrations" not in module.name and module.name not in left_out:
        importlib.import_module(module.name)
"""


@cache
def packages_of_image(folder: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the packages that all images share, and those that one adds, by the commands of the Dockerfile."""
    dockerfile = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    with TemporaryDirectory() as temporary:
        commands = [found.replace(" /", f" {temporary}/") for found in re.findall(r"\buv export[^&\n]*", dockerfile)]
        assert len(commands) == 2
        environment = {**os.environ, "FOLDER": folder}
        subprocess.run(["sh", "-ec", "\n".join(commands)], cwd=ROOT, env=environment, check=True)
        files = [Path(temporary, name).read_text() for name in ("shared.txt", "own.txt")]
    shared, own = (frozenset(re.findall(r"^([a-z0-9._-]+)==", file, re.MULTILINE)) for file in files)
    return shared, own


@pytest.mark.parametrize(
    ("folder", "packages"),
    [
        ("services/cart", set()),
        ("services/checkout", {"cryptography"}),
        ("services/load-generator", {"locust", "gevent", "flask"}),
        ("employee-api", {"sqlmodel", "pydantic", "greenlet", "tzdata"}),
    ],
)
def test_a_package_that_one_image_needs_is_in_that_image_alone(folder: str, packages: set[str]) -> None:
    shared, own = packages_of_image(folder)
    assert packages <= own
    assert bool(own) == bool(packages)
    assert own & (shared | {"pytest"}) == set()


def missing_in_images() -> set[str]:
    """Return the names of installed modules that no package of all images has, nor one of this repository."""
    pinned, _ = packages_of_image("services/cart")
    projects = (ROOT.glob(f"{folder}/pyproject.toml") for folder in ("protos", "services/*"))
    own = {tomllib.loads(file.read_text())["project"]["name"] for files in projects for file in files}
    return {
        module
        for module, distributions in metadata.packages_distributions().items()
        if not {re.sub(r"[-_.]+", "-", name).lower() for name in distributions} & (pinned | own)
    }


@pytest.mark.parametrize("package", ["chassis", *PACKAGES])
def test_images_have_all_packages_that_a_service_may_import(package: str) -> None:
    arguments = (package, ",".join(NOT_IN_SERVICES), ",".join(missing_in_images()))
    command = [sys.executable, "-c", IMPORT_EVERYTHING, *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
