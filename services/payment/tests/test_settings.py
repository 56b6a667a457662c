import subprocess
import sys

import pytest

from chassis.settings import load
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


def test_visa_and_mastercard_are_taken_unless_others_are_named() -> None:
    assert Settings().accepted_brands == {Brand.VISA, Brand.MASTERCARD}
    assert load(Settings, {"ACCEPTED_BRANDS": "visa, Amex"}).accepted_brands == {Brand.VISA, Brand.AMEX}


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


def test_settings_show_no_secrets() -> None:
    given = {"HMAC_KEY": SECRET * 2, "DATABASE_URL": f"postgresql://shop:{SECRET}@host/db"}
    assert SECRET not in repr(load(Settings, given))
