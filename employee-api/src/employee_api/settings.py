"""Settings of the employee API, read from the environment."""

import os
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr

from chassis.http_server import HttpServiceSettings
from chassis.settings import MAX_PORT, DatabaseSettings, DatabaseUrl
from employee_api.breached_passwords import check_breached_passwords_file
from employee_api.origins import HostPatterns, Origins


class AuthMode(StrEnum):
    """Whether authorization is off, only measured, or enforced."""

    OFF = "off"
    OBSERVE = "observe"
    ENFORCE = "enforce"


class RegistrationMode(StrEnum):
    """Who may register: everyone, who has an invitation, or no one."""

    OPEN = "open"
    INVITE = "invite"
    CLOSED = "closed"


class DatabaseAwayStatus(IntEnum):
    """The status of responses while the database is away."""

    INTERNAL_SERVER_ERROR = 500
    SERVICE_UNAVAILABLE = 503


_MAX_PASSWORD_THREADS = 4
_PASSWORD_MIN_LENGTH = 12
_LONGEST_MIN_LENGTH = 64  # NIST SP 800-63B: passwords of 64 characters must be allowed


def _password_threads() -> int:
    """Return one less than the number of cores: one is for everything else. Each hash takes 19 MiB."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores - 1, _MAX_PASSWORD_THREADS))


class EmployeeApiSettings(HttpServiceSettings, DatabaseSettings):
    """Settings of the process. A field's name in capitals is its environment variable."""

    port: int = Field(default=8000, ge=0, le=MAX_PORT)
    database_url: DatabaseUrl = SecretStr("sqlite:///.shop/employee-api.db")
    auth_mode: AuthMode = AuthMode.OFF
    session_idle_seconds: float = Field(default=8 * 3600, gt=0)
    session_absolute_seconds: float = Field(default=7 * 24 * 3600, gt=0)
    failed_logins_per_email: int = Field(default=10, ge=1)
    failed_logins_per_address: int = Field(default=100, ge=1)
    failed_logins_window_seconds: float = Field(default=900, gt=0)
    registration: RegistrationMode | None = None
    registrations_per_address: int = Field(default=20, ge=1)
    password_threads: int = Field(default_factory=_password_threads, ge=1)
    password_min_length: int | None = Field(default=None, ge=1, le=_LONGEST_MIN_LENGTH)
    breached_passwords_file: Annotated[Path, AfterValidator(check_breached_passwords_file)] | None = None
    csv_defuse_formulas: bool = True
    allowed_hosts: HostPatterns = frozenset()
    allowed_origins: Origins = frozenset()
    allow_cross_site: bool = False
    database_away_status: DatabaseAwayStatus | None = None

    @property
    def reports_database_away(self) -> bool:
        """Whether requests get a 503 while the database is away, instead of the documented 500."""
        if self.database_away_status is None:
            return self.auth_mode is not AuthMode.OFF
        return self.database_away_status is DatabaseAwayStatus.SERVICE_UNAVAILABLE

    @property
    def min_password_length(self) -> int:
        """The setting, or its default: the documented behaviour has no minimum."""
        return self.password_min_length or (1 if self.auth_mode is AuthMode.OFF else _PASSWORD_MIN_LENGTH)
