import itertools

import pytest

from chassis.settings import load
from employee_api.settings import EmployeeApiSettings

DURATIONS = ("SESSION_IDLE_SECONDS", "SESSION_ABSOLUTE_SECONDS", "FAILED_LOGINS_WINDOW_SECONDS")


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        *itertools.product(DURATIONS, ("0", "inf", "1e12", "8h")),
        ("ALLOWED_HOSTS", "https://api.test"),
        ("ALLOWED_HOSTS", "api.test:8000"),
        ("ALLOWED_HOSTS", "*"),
        ("ALLOWED_HOSTS", "api.*.test"),
        ("ALLOWED_ORIGINS", "*"),
        ("ALLOWED_ORIGINS", "null"),
        ("ALLOWED_ORIGINS", "app.example.com"),
        ("ALLOWED_ORIGINS", "https://*.example.com"),
        ("ALLOWED_ORIGINS", "https://app.example.com/"),
    ],
)
def test_an_invalid_setting_ends_the_start(variable: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        load(EmployeeApiSettings, {variable: value})
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{variable}: ")
