import subprocess
import sys

import pytest

from chassis.settings import load
from payment_service.__main__ import Settings
from payment_service.cards import Brand

KEY = "k" * 32


def test_visa_and_mastercard_are_accepted_by_default() -> None:
    assert load(Settings, {"HMAC_KEY": KEY}).accepted_brands == {Brand.VISA, Brand.MASTERCARD}
    given = {"HMAC_KEY": KEY, "ACCEPTED_BRANDS": "visa, Amex"}
    assert load(Settings, given).accepted_brands == {Brand.VISA, Brand.AMEX}


@pytest.mark.parametrize(
    ("variable", "value"), [("ACCEPTED_BRANDS", "visa,banana"), ("HMAC_KEY", "short"), ("HMAC_KEY", "")]
)
def test_an_invalid_value_ends_the_start_and_names_its_variable(
    variable: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        load(Settings, {"HMAC_KEY": KEY, variable: value})
    assert capsys.readouterr().err.startswith(f"{variable}: ")


def test_the_migrate_command_is_repeatable_and_needs_no_other_setting(postgres_url: str) -> None:
    command = [sys.executable, "-m", "payment_service", "migrate"]
    for _ in range(2):
        subprocess.run(command, env={"DATABASE_URL": postgres_url}, check=True)
