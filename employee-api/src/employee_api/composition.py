"""Puts the parts together, once, for the process and for its tests alike."""

import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol

from sqlalchemy.ext.asyncio import AsyncEngine
from starlette.applications import Starlette
from starlette.types import Lifespan

from chassis.telemetry import Telemetry
from employee_api.app import create_app
from employee_api.auth import FailedLogins, Policy
from employee_api.endpoints.exports import ExportEndpoints
from employee_api.endpoints.health import HealthEndpoints
from employee_api.endpoints.tasks import TaskEndpoints
from employee_api.endpoints.users import UserEndpoints
from employee_api.exports import Exports
from employee_api.operations import Operation
from employee_api.passwords import Passwords
from employee_api.repository import Clock, UserRepository
from employee_api.sessions import SessionRepository
from employee_api.settings import EmployeeApiSettings
from employee_api.task_repository import TaskRepository

MIGRATIONS = Path(__file__).parent / "migrations"


def now() -> datetime:
    """The time, in UTC."""
    return datetime.now(UTC)


class Group(Protocol):
    """Operations that are served by the same parts."""

    def operations(self) -> list[Operation]:
        """What the group serves."""


@dataclass(frozen=True)
class Composed:
    """An application, and what a process tells it before it stops."""

    app: Starlette
    stopping: Callable[[], None]


def compose(
    settings: EmployeeApiSettings, engine: AsyncEngine, passwords: Passwords, telemetry: Telemetry, clock: Clock = now
) -> Composed:
    """Build the application on a database. It closes the database and the password threads when it ends."""
    idle, absolute = (
        timedelta(seconds=settings.session_idle_seconds),
        timedelta(seconds=settings.session_absolute_seconds),
    )
    sessions = SessionRepository(engine, clock, idle=idle, absolute=absolute)
    policy = Policy(settings.auth_mode, sessions, telemetry.meter)
    users = UserRepository(engine, clock, random.SystemRandom())
    health = HealthEndpoints(engine, MIGRATIONS)
    groups: list[Group] = [
        UserEndpoints(users, sessions, passwords, policy, _failed_logins(settings)),
        TaskEndpoints(TaskRepository(engine, clock)),
        ExportEndpoints(Exports(engine, telemetry.tracer, defuse=settings.csv_defuse_formulas)),
        health,
    ]
    operations = [operation for group in groups for operation in group.operations()]
    return Composed(create_app(operations, policy, telemetry, _closing(engine, passwords)), health.stop)


def _failed_logins(settings: EmployeeApiSettings) -> FailedLogins:
    return FailedLogins(
        per_email=settings.failed_logins_per_email,
        per_address=settings.failed_logins_per_address,
        window_seconds=settings.failed_logins_window_seconds,
        time=time.monotonic,
    )


def _closing(engine: AsyncEngine, passwords: Passwords) -> Lifespan[Starlette]:
    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        yield
        passwords.close()
        await engine.dispose()

    return lifespan
