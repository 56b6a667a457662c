"""Disks that outlive processes and can lose their last commits, and the databases on them: SQLite in memory."""

import asyncio
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path

from typing_extensions import override

from chassis.background import shared_result
from chassis.sql.database import Database, Parameters, Row, Statement
from chassis.sql.migrate import migrate
from shop_kit.memory_database import MemoryDatabase
from shop_lab.simulation.clock import EPOCH
from shop_lab.simulation.faults import Faults
from shop_lab.simulation.network import on_behalf_of
from shop_lab.simulation.processes import Process

_ANSWER_WITHIN_SECONDS = 4.0
_RETRY_SECONDS = 0.1


@cache
def empty_database(migrations: Path) -> bytes:
    """Return the database that a folder of migrations makes, serialized."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "empty.db")
        migrate(f"sqlite:///{path}", migrations)
        with closing(sqlite3.connect(path)) as connection:
            if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'retention'").fetchone():
                # The clock has been steady for long.
                connection.execute(f"UPDATE retention SET seen_at = {EPOCH}, steady_since = 0")  # noqa: S608 - a number
                connection.commit()
            return connection.serialize()


class Disk(MemoryDatabase):
    """What one database has committed.

    Attributes:
        is_down: the database refuses connections.
        ahead_seconds: how far its clock is ahead of the others.
    """

    def __init__(self, migrations: Path, clock: Callable[[], float], unavailable: Callable[[], Exception]) -> None:
        super().__init__(empty_database(migrations), lambda: clock() + self.ahead_seconds)
        self.is_down = False
        self.ahead_seconds = 0.0
        self.unavailable = unavailable


class SimulatedDatabase(Database):
    """A database as one process sees it. Transactions run one after the other, as those of SQLite do."""

    def __init__(self, disk: Disk, process: Process, faults: Faults) -> None:
        self._disk = disk
        self._process = process
        self._faults = faults
        self._steps: Counter[str] = Counter()

    @override
    async def write(self, *batch: Statement) -> list[list[Row]]:
        # A cancelled caller does not stop the transaction: the writer's thread finishes what it began.
        return await shared_result(asyncio.create_task(self._write(batch)))

    async def _write(self, batch: tuple[Statement, ...]) -> list[list[Row]]:
        give_up_at = asyncio.get_running_loop().time() + _ANSWER_WITHIN_SECONDS
        while True:
            await self._pause("write")
            if not self._disk.is_down:
                rows = await self._disk.write(*batch)
                if not self._faults.loses_reply(self._step("reply")):
                    await self._pause("confirm")
                    return rows
            await self._wait_for_connection(give_up_at)

    @override
    async def read(self, text: str, parameters: Parameters, *, within_seconds: float | None = None) -> list[Row]:
        give_up_at = asyncio.get_running_loop().time() + _ANSWER_WITHIN_SECONDS
        await self._pause("read")
        while self._disk.is_down:
            await self._wait_for_connection(give_up_at)
        rows = await self._disk.read(text, parameters)
        await self._pause("rows")
        return rows

    @override
    async def report(self, text: str, parameters: Parameters) -> list[Row]:
        return await self.read(text, parameters)

    def _step(self, name: str) -> str:
        step = f"{self._process.name}({on_behalf_of.get()})/{name}"
        self._steps[step] += 1
        return f"{step}#{self._steps[step]}"

    async def _pause(self, name: str) -> None:
        await asyncio.sleep(self._faults.seconds_of(self._step(name)))
        await self._process.running()

    async def _wait_for_connection(self, give_up_at: float) -> None:
        if asyncio.get_running_loop().time() + _RETRY_SECONDS >= give_up_at:
            raise self._disk.unavailable()
        await asyncio.sleep(_RETRY_SECONDS)
        await self._process.running()
