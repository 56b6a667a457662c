import subprocess
import sys

import pytest

from chassis.settings import load
from payment_service.__main__ import Settings
from payment_service.cards import Brand

SECRET = "a-secret-that-must-not-leak"
KEY = "k" * 32


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "payment_service", *arguments],
        env={"HOST": "127.0.0.1", "PORT": "0", "INTERNAL_PORT": "0", **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_visa_and_mastercard_are_accepted_by_default() -> None:
    assert load(Settings, {"HMAC_KEY": KEY}).accepted_brands == {Brand.VISA, Brand.MASTERCARD}
    given = {"HMAC_KEY": KEY, "ACCEPTED_BRANDS": "visa, Amex"}
    assert load(Settings, given).accepted_brands == {Brand.VISA, Brand.AMEX}


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("ACCEPTED_BRANDS", "visa,banana"),
        ("HMAC_KEY", "short"),
        ("HMAC_KEY", f"{KEY},{SECRET[:8]}"),
        ("DATABASE_URL", f"mysql://shop:{SECRET}@host/db"),
        ("DATABASE_URL", SECRET),
    ],
)
def test_an_invalid_value_ends_the_start_and_names_its_variable(variable: str, value: str) -> None:
    stopped = run(**{"HMAC_KEY": KEY, variable: value})
    assert stopped.returncode == 2
    assert stopped.stderr.startswith(f"{variable}: ")
    assert SECRET not in stopped.stderr


def test_an_hmac_key_is_required() -> None:
    stopped = run()
    assert (stopped.returncode, stopped.stderr) == (2, "HMAC_KEY: Field required\n")


def test_the_migrate_command_is_repeatable(postgres_url: str) -> None:
    for _ in range(2):
        migrated = run("migrate", DATABASE_URL=postgres_url)
        assert (migrated.returncode, migrated.stderr) == (0, "")


def test_secrets_are_not_in_the_repr_of_settings() -> None:
    given = {"HMAC_KEY": SECRET * 2, "DATABASE_URL": f"postgresql://shop:{SECRET}@host/db"}
    assert SECRET not in repr(load(Settings, given))
