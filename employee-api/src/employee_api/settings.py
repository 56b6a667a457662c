"""What the employee API can be told."""

import os
from enum import StrEnum

from pydantic import Field, SecretStr

from chassis.settings import MAX_PORT, DatabaseUrl, Settings


class AuthMode(StrEnum):
    """How much of the policy is applied: none, only counted, or all of it."""

    OFF = "off"
    OBSERVE = "observe"
    ENFORCE = "enforce"


_MOST_PASSWORD_THREADS = 4


def _password_threads() -> int:
    """One for each core, but not a core more than memory allows: each hash takes 19 MiB while it is made."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, _MOST_PASSWORD_THREADS)


class EmployeeApiSettings(Settings):
    """The environment of the employee API; a field's name in capitals is the variable's."""

    host: str = "0.0.0.0"
    port: int = Field(default=8000, ge=0, le=MAX_PORT)
    database_url: DatabaseUrl = SecretStr("sqlite:///.shop/employee-api.db")
    auth_mode: AuthMode = AuthMode.OFF
    session_idle_seconds: float = Field(default=8 * 3600, gt=0)
    session_absolute_seconds: float = Field(default=7 * 24 * 3600, gt=0)
    failed_logins_per_email: int = Field(default=10, ge=1)
    failed_logins_per_address: int = Field(default=100, ge=1)
    failed_logins_window_seconds: float = Field(default=900, gt=0)
    password_threads: int = Field(default_factory=_password_threads, ge=1)
    csv_defuse_formulas: bool = True
    drain_seconds: float = Field(default=2, ge=0)
    grace_seconds: float = Field(default=20, ge=0)
    reload: bool = False
