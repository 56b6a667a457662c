"""What an orchestrator asks: is the process alive, may it get requests."""

import asyncio
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from chassis import database
from employee_api.errors import NotReady
from employee_api.operations import Call, Operation
from employee_api.schemas import Health

_PATIENCE_SECONDS = 2.0


class HealthEndpoints:
    """Operations on the process itself."""

    def __init__(self, engine: AsyncEngine, migrations: Path) -> None:
        self._engine = engine
        self._migrations = migrations
        self._stopping = False

    def operations(self) -> list[Operation]:
        """What this group serves."""
        return [
            Operation("GET", "/healthz", "Whether the process is alive", self.healthz, Health),
            Operation(
                "GET", "/readyz", "Whether the database answers and its migrations have run", self.readyz, Health,
                failures=(NotReady(),),
            ),
        ]  # fmt: skip

    def stop(self) -> None:
        """Tell from now on that no more requests shall come."""
        self._stopping = True

    async def healthz(self, _call: Call) -> Health:
        """Alive, since it answers."""
        return Health()

    async def readyz(self, _call: Call) -> Health:
        """Ask the database."""
        if self._stopping:
            raise NotReady
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                current = await database.is_current(self._engine, self._migrations)
        except (SQLAlchemyError, TimeoutError) as error:
            raise NotReady from error
        if not current:
            raise NotReady
        return Health()
