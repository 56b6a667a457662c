"""Liveness and readiness endpoints."""

import asyncio
from pathlib import Path
from typing import Literal

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from chassis import database
from employee_api.errors import NotReady
from employee_api.http.inputs import NoInput
from employee_api.http.operations import Call, Endpoint, Operation
from employee_api.http.outputs import JsonOutput
from employee_api.schemas import Output

_DATABASE_TIMEOUT_SECONDS = 2.0


class Health(Output):
    """The state of the process."""

    status: Literal["ok"] = "ok"


class HealthEndpoints:
    def __init__(self, engine: AsyncEngine, migrations: Path) -> None:
        self._engine = engine
        self._migrations = migrations
        self._shutting_down = False

    def operations(self) -> list[Operation]:
        return [
            Endpoint("GET", "/healthz", "Whether the process is alive", NoInput(), JsonOutput(Health), self.healthz),
            Endpoint(
                "GET", "/readyz", "Whether the database answers and its migrations have run",
                NoInput(), JsonOutput(Health), self.readyz, failures=(NotReady(),),
            ),
        ]  # fmt: skip

    def begin_shutdown(self) -> None:
        """Report not ready from now on."""
        self._shutting_down = True

    async def healthz(self, _call: Call[None]) -> Health:
        return Health()

    async def readyz(self, _call: Call[None]) -> Health:
        if self._shutting_down:
            raise NotReady
        try:
            async with asyncio.timeout(_DATABASE_TIMEOUT_SECONDS):
                current = await database.is_current(self._engine, self._migrations)
        except (SQLAlchemyError, TimeoutError) as error:
            raise NotReady from error
        if not current:
            raise NotReady
        return Health()
