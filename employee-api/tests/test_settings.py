import pytest

from chassis.settings import load
from employee_api.settings import EmployeeApiSettings


@pytest.mark.parametrize("value", ["0", "inf", "1e12", "8h"])
@pytest.mark.parametrize(
    "variable", ["SESSION_IDLE_SECONDS", "SESSION_ABSOLUTE_SECONDS", "FAILED_LOGINS_WINDOW_SECONDS"]
)
def test_an_impossible_duration_ends_the_start(capsys: pytest.CaptureFixture[str], variable: str, value: str) -> None:
    with pytest.raises(SystemExit):
        load(EmployeeApiSettings, {variable: value})
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{variable}: ")
