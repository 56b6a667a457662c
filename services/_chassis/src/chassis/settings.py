"""Settings come from the environment, once, in `__main__`; a bad one stops the start with the variable's name."""

import os
import sys
from collections.abc import Mapping
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, ValidationError

from chassis import database
from chassis.failpoints import Failpoints

MAX_PORT = 65_535

SettingsT = TypeVar("SettingsT", bound="Settings")


class Settings(BaseModel):
    """What every process of the shop can be told. A field's name in capitals is the variable's."""

    model_config = ConfigDict(frozen=True)

    log_level: Literal["debug", "info", "warning", "error"] = "info"


def _checked_failpoints(specification: str) -> str:
    Failpoints(specification)
    return specification


def _checked_database_url(url: SecretStr) -> SecretStr:
    if database.sqlite_path(url.get_secret_value()) is None:
        database.libpq_url(url.get_secret_value())
    return url


# `sqlite:///file.db` or `postgresql://user:password@host/name`: a secret as a whole, as it may hold a password.
DatabaseUrl = Annotated[SecretStr, AfterValidator(_checked_database_url)]


class ServiceSettings(Settings):
    """What every gRPC service can be told."""

    host: str = "[::]"
    port: int = Field(default=50051, ge=0, le=MAX_PORT)
    # SIGTERM reaches a pod before its address leaves the endpoints: serve meanwhile, then finish what is in flight.
    drain_seconds: float = Field(default=2, ge=0)
    grace_seconds: float = Field(default=20, ge=0)
    # Round robin finds new pods when a connection ends, so this bounds how long a scale-up takes to spread the load.
    max_connection_age_seconds: float = Field(default=60, gt=0)
    max_concurrent_rpcs: int = Field(default=256, ge=1)
    reload: bool = False
    failpoints: Annotated[str, AfterValidator(_checked_failpoints)] = ""


def load(settings: type[SettingsT], environment: Mapping[str, str] = os.environ) -> SettingsT:
    """Read the environment, or exit with status 2 and a line for each variable that is missing or bad.

    An empty variable counts as none. pydantic-settings would do the same for 5 MB of memory and 0.1 s of every start.
    """
    values = {name: value for name in settings.model_fields if (value := environment.get(name.upper()))}
    try:
        return settings.model_validate(values)
    except ValidationError as error:
        for problem in error.errors(include_input=False, include_url=False):
            name = str(problem["loc"][0]).upper()  # what follows it is a place within the value
            print(f"{name}: {problem['msg']}", file=sys.stderr)  # noqa: T201 - before logs are set up
        sys.exit(2)
