from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import pytest
from msgspec import Meta

from chassis.settings import HmacKeySetting, Port, PositiveFloat, SecretStr, Settings, load, load_one, secret_url
from chassis.sql.settings import DatabaseUrl

SECRET = "a-secret-that-must-not-leak"


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Example(Settings):
    name: str
    port: Port = 80
    ratio: Annotated[float, Meta(ge=0, le=1)] | None = None
    seconds: PositiveFloat = 2
    enabled: bool = False
    colour: Colour | None = None
    level: Literal["low", "high"] = "low"
    folder: Path = Path("here")
    token: SecretStr | None = None


class Stored(Settings):
    hmac_key: HmacKeySetting
    database_url: DatabaseUrl = SecretStr("sqlite:///default.db")
    url: Annotated[SecretStr, secret_url("http", "https")] | None = None
    name: str


def problems(settings: type[Settings], capsys: pytest.CaptureFixture[str], **environment: str) -> list[str]:
    """Load invalid settings, and return the lines that are printed."""
    with pytest.raises(SystemExit) as exited:
        load(settings, environment)
    assert exited.value.code == 2
    return capsys.readouterr().err.splitlines()


def test_variables_are_converted_to_the_types_of_their_fields() -> None:
    numbers = {"PORT": "8080", "RATIO": "0.5", "SECONDS": "7", "ENABLED": "true"}
    loaded = load(Example, {"NAME": "a", "COLOUR": "Blue", "LEVEL": "HIGH", "FOLDER": "there", **numbers})
    assert (loaded.port, loaded.ratio, loaded.seconds, loaded.enabled) == (8080, 0.5, 7.0, True)
    assert (loaded.colour, loaded.level, loaded.folder) == (Colour.BLUE, "high", Path("there"))


@pytest.mark.parametrize(
    ("text", "enabled"), [("True", True), ("yes", True), ("on", True), ("1", True), ("off", False)]
)
def test_a_switch_has_several_spellings(text: str, enabled: bool) -> None:
    assert load(Example, {"NAME": "a", "ENABLED": text}).enabled is enabled


def test_a_blank_variable_counts_as_unset_a_line_break_at_the_end_is_ignored_and_null_is_a_text() -> None:
    assert load(Example, {"NAME": "null\n", "PORT": "", "COLOUR": "\n"}) == Example(name="null")


def test_every_missing_or_invalid_variable_has_a_line_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    lines = problems(Example, capsys, PORT="65536", SECONDS="0", LEVEL="middle", ENABLED="maybe")
    assert lines == [
        "NAME: Field required",
        "PORT: Expected `int` <= 65535",
        "SECONDS: Expected `float` > 0.0",
        "ENABLED: must be true or false",
        "LEVEL: must be one of low, high",
    ]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PORT", "-1"), ("PORT", "http"), ("PORT", "1.5"), ("RATIO", "1.1"), ("RATIO", "null"), ("SECONDS", "nan"),
        ("ENABLED", "maybe"), ("COLOUR", "green"), ("SSL_CERT_FILE", "/missing"), ("LOG_LEVEL", "loud"),
    ],
)  # fmt: skip
def test_an_invalid_value_is_named_but_not_quoted(capsys: pytest.CaptureFixture[str], name: str, value: str) -> None:
    (line,) = problems(Example, capsys, **{"NAME": "a", name: value})
    assert line.startswith(f"{name}: ")
    assert value not in line


def test_a_secret_is_not_in_the_text_of_settings() -> None:
    loaded = load(Example, {"NAME": "a", "TOKEN": SECRET})
    assert loaded.token is not None
    assert loaded.token.get_secret_value() == SECRET
    assert SECRET not in f"{loaded} {loaded!r} {loaded.token} {loaded.token!r}"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HMAC_KEY", SECRET),
        ("DATABASE_URL", f"mysql://shop:{SECRET}@host/db"),
        *(
            ("URL", f"https://jane:{start}{SECRET}{end}@host/")
            for start in ("", "123/", "[")
            for end in ("/", "#", "?")
        ),
        *(("URL", url) for url in (f"https://:{SECRET}/@host", f"ftp://{SECRET}@host", "https://")),
    ],
)
def test_an_invalid_secret_is_not_printed(capsys: pytest.CaptureFixture[str], name: str, value: str) -> None:
    (line,) = problems(Stored, capsys, **{"NAME": "a", "HMAC_KEY": "k" * 32, name: value})
    assert line.startswith(f"{name}: ")
    assert SECRET not in line


def test_a_migration_reads_no_setting_but_the_database_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "sqlite:///own.db")
    assert load_one(Stored, "database_url").get_secret_value() == "sqlite:///own.db"


def test_settings_can_not_be_changed() -> None:
    loaded = load(Example, {"NAME": "a"})
    with pytest.raises(AttributeError):
        loaded.port = 1  # type: ignore[misc]
