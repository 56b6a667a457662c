"""Settings, read from the environment once, in `__main__`. An invalid one ends the start with the variable's name."""

import os
import sys
from collections.abc import Mapping
from typing import Annotated, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    create_model,
)

from chassis import database
from chassis.failpoints import Failpoints
from chassis.hmac_keys import HmacKeys

MAX_PORT = 65_535

SettingsT = TypeVar("SettingsT", bound="Settings")


class Settings(BaseModel):
    """Settings of every process. A field is read from the environment variable of the same name in capitals."""

    model_config = ConfigDict(frozen=True)

    log_level: Literal["debug", "info", "warning", "error"] = "info"


def _validate_failpoints(specification: str) -> str:
    Failpoints(specification)
    return specification


def _validate_database_url(url: SecretStr) -> SecretStr:
    database.validate_url(url.get_secret_value())
    return url


# `sqlite:///file.db` or `postgresql://user:password@host/name`; secret because it may contain a password.
DatabaseUrl = Annotated[SecretStr, AfterValidator(_validate_database_url)]


def _validate_hmac_keys(keys: SecretStr) -> SecretStr:
    HmacKeys.parse(keys.get_secret_value())
    return keys


# One key, or several while one replaces another, separated by commas: see chassis.hmac_keys.
HmacKeyText = Annotated[SecretStr, AfterValidator(_validate_hmac_keys)]


class DatabaseSettings(Settings):
    """Settings of a process that stores rows. Subclasses set a default for `database_url`."""

    database_url: DatabaseUrl


class HmacKeySettings(Settings):
    """Settings of a process that stores HMACs: the keys come from outside, so that no copy of its data has them."""

    hmac_key: HmacKeyText

    @property
    def hmac_keys(self) -> HmacKeys:
        return HmacKeys.parse(self.hmac_key.get_secret_value())


class ServerSettings(Settings):
    """Settings of every process that serves. Subclasses set defaults for `host` and `port`."""

    host: str
    port: int = Field(ge=0, le=MAX_PORT)
    # SIGTERM reaches a pod before its address leaves the endpoints: serve until then, and finish the calls in flight.
    drain_seconds: float = Field(default=2, ge=0)
    grace_seconds: float = Field(default=20, ge=0)
    reload: bool = False


class ServiceSettings(ServerSettings):
    """Settings of every gRPC service, read from the environment."""

    host: str = "[::]"
    port: int = Field(default=50051, ge=0, le=MAX_PORT)
    # Of services for other services and operators, such as PaymentLedger; most processes have none.
    internal_port: int = Field(default=50052, ge=0, le=MAX_PORT)
    # Clients find new pods only when a connection closes: this bounds how long a scale-up takes to spread the load.
    max_connection_age_seconds: float = Field(default=60, gt=0)
    max_concurrent_rpcs: int = Field(default=256, ge=1)
    failpoints: Annotated[str, AfterValidator(_validate_failpoints)] = ""


def load(settings: type[SettingsT], environment: Mapping[str, str] = os.environ) -> SettingsT:
    """Read settings from the environment, or exit with status 2 and one line per missing or invalid variable.

    An empty variable counts as unset. pydantic-settings would do the same, for 5 MB of memory and 0.1 s at each start.
    """
    values = {name: value for name in settings.model_fields if (value := environment.get(name.upper()))}
    try:
        return settings.model_validate(values)
    except ValidationError as error:
        for problem in error.errors(include_input=False, include_url=False):
            name = str(problem["loc"][0]).upper()  # the rest of `loc` is a position within the value
            print(f"{name}: {problem['msg']}", file=sys.stderr)  # noqa: T201 - before logs are set up
        sys.exit(2)


def load_database_url(settings: type[Settings], environment: Mapping[str, str] = os.environ) -> str:
    """Read only DATABASE_URL, with its default from the settings: a migration needs no other setting."""
    field = settings.model_fields["database_url"]
    only: type[DatabaseSettings] = create_model(
        "DatabaseSettings", __base__=DatabaseSettings, database_url=(DatabaseUrl, field)
    )
    return load(only, environment).database_url.get_secret_value()
