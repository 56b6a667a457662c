import os
import subprocess
import sys
from pathlib import Path

NAMES = ("CART_ADDR", "PRODUCT_CATALOG_ADDR", "SHIPPING_ADDR", "CURRENCY_ADDR", "PAYMENT_ADDR", "EMAIL_ADDR")
ADDRESSES = dict.fromkeys(NAMES, "127.0.0.1:1")


def run(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "checkout_service", *arguments],
        env={"HOST": "127.0.0.1", "PORT": "0", "INTERNAL_PORT": "0", "PATH": os.environ["PATH"], **environment},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_migrate_creates_the_database_and_exits(tmp_path: Path) -> None:
    ran = run(tmp_path, "migrate")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert (tmp_path / ".shop" / "checkout.db").exists()


def test_an_hmac_key_is_required(tmp_path: Path) -> None:
    ran = run(tmp_path, **ADDRESSES)
    assert (ran.returncode, ran.stderr) == (2, "HMAC_KEY: Field required\n")
