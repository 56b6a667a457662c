import os
from dataclasses import field
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from chassis.http.server import HttpServiceSettings
from chassis.settings import Parse, Port, PositiveInt, SecretStr
from chassis.sql.settings import DatabaseUrl
from chassis.values.hosts import ORIGIN
from employee_api.breached_passwords import parse_breached_passwords_file


class AuthMode(StrEnum):
    """How strictly requests are authorized. `observe` only counts and logs the requests that `enforce` would refuse."""

    OFF = "off"
    OBSERVE = "observe"
    ENFORCE = "enforce"


class RegistrationMode(StrEnum):
    OPEN = "open"
    INVITE = "invite"
    CLOSED = "closed"


_DEFAULT_PORTS = {"http": ":80", "https": ":443"}
_MAX_PASSWORD_THREADS = 4
PASSWORD_MIN_LENGTH = 12
_LONGEST_MIN_LENGTH = 64  # NIST SP 800-63B requires services to accept passwords of 64 characters
# Limit durations to a century, because databases must be able to store the current time plus a duration.
_Duration = Annotated[float, Meta(gt=0, le=100 * 365 * 24 * 3600)]


def _password_threads() -> int:
    """Return the default thread count: all cores but one, and at most 4 threads, because each hash takes 19 MiB."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores - 1, _MAX_PASSWORD_THREADS))


def _parse_origins(text: str) -> frozenset[str]:
    """Parse comma-separated origins into the form that browsers send."""
    origins = frozenset(part.strip().lower() for part in text.split(",") if part.strip())
    if not all(ORIGIN.fullmatch(origin) for origin in origins):
        raise ValueError("must be exact origins, such as https://app.example.com, separated by commas")
    return frozenset(origin.removesuffix(_DEFAULT_PORTS[origin.partition(":")[0]]) for origin in origins)


class EmployeeApiSettings(HttpServiceSettings):
    """The employee API's settings. Each is read from the environment variable named after the field, in capitals."""

    port: Port = 8000
    database_url: DatabaseUrl = SecretStr("sqlite:///.shop/employee-api.db")
    auth_mode: AuthMode = AuthMode.OFF
    session_idle_seconds: _Duration = 8 * 3600
    session_absolute_seconds: _Duration = 7 * 24 * 3600
    failed_logins_per_email: PositiveInt = 10
    failed_logins_per_address: PositiveInt = 100
    failed_logins_window_seconds: _Duration = 900
    registration: RegistrationMode | None = None
    registrations_per_address: PositiveInt = 20
    password_threads: PositiveInt = field(default_factory=_password_threads)
    password_min_length: Annotated[int, Meta(ge=1, le=_LONGEST_MIN_LENGTH)] | None = None
    breached_passwords_file: Annotated[Path, Parse(parse_breached_passwords_file)] | None = None
    csv_defuse_formulas: bool = True
    allowed_origins: Annotated[frozenset[str], Parse(_parse_origins)] = frozenset()
    allow_cross_site: bool = False

    @property
    def min_password_length(self) -> int:
        """The configured minimum. By default 12, or 1 if `AUTH_MODE` is `off`, because the contract sets no minimum."""
        return self.password_min_length or (1 if self.auth_mode is AuthMode.OFF else PASSWORD_MIN_LENGTH)
