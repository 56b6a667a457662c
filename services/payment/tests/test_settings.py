import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from payment_service import hmac_key
from payment_service.__main__ import Settings
from payment_service.cards import Brand

SECRET = "not-for-anyones-eyes"


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "payment_service", *arguments],
        env={"HOST": "127.0.0.1", "PORT": "0", **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_visa_and_mastercard_are_taken_unless_others_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings().accepted_brands == {Brand.VISA, Brand.MASTERCARD}
    monkeypatch.setenv("ACCEPTED_BRANDS", "visa, Amex")
    assert Settings().accepted_brands == {Brand.VISA, Brand.AMEX}


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("ACCEPTED_BRANDS", "visa,banana"),
        ("HMAC_KEY", "short"),
        ("DATABASE_URL", f"mysql://shop:{SECRET}@host/db"),
        ("DATABASE_URL", SECRET),
    ],
)
def test_a_bad_value_stops_the_start_with_the_name_of_its_variable(variable: str, value: str) -> None:
    stopped = run(**{variable: value})
    assert stopped.returncode == 2
    assert stopped.stderr.startswith(f"{variable}: ")
    assert SECRET not in stopped.stderr


def test_a_shared_database_needs_a_shared_key(postgres_url: str) -> None:
    stopped = run(DATABASE_URL=postgres_url)
    assert stopped.returncode != 0
    assert stopped.stderr.startswith("HMAC_KEY: ")


def test_migrating_is_a_command_of_its_own_that_may_be_repeated(postgres_url: str) -> None:
    for _ in range(2):
        migrated = run("migrate", DATABASE_URL=postgres_url)
        assert (migrated.returncode, migrated.stderr) == (0, "")


def test_settings_show_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HMAC_KEY", SECRET * 2)
    monkeypatch.setenv("DATABASE_URL", f"postgresql://shop:{SECRET}@host/db")
    assert SECRET not in repr(Settings())


def test_the_kept_key_is_made_once_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    database = tmp_path / "new" / "payment.db"
    with ThreadPoolExecutor(max_workers=8) as threads:
        keys = set(threads.map(hmac_key.kept_beside, [database] * 8))
    assert len(keys) == 1
    assert [len(key) for key in keys] == [64]
    assert [path.stat().st_mode & 0o777 for path in database.parent.iterdir()] == [0o600]


def test_each_database_has_a_key_of_its_own(tmp_path: Path) -> None:
    assert hmac_key.kept_beside(tmp_path / "a.db") != hmac_key.kept_beside(tmp_path / "b.db")
