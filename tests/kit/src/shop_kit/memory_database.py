"""SQLite in memory, which can lose its latest commits."""

import sqlite3
from collections.abc import Callable
from typing import Any

from typing_extensions import override

from chassis.sql.database import Database, Parameters, Row, Statement
from chassis.sql.sqlite import add_functions, fetch


class MemoryDatabase(Database):
    """A database without threads.

    Everything is one transaction, in which a savepoint stands for a commit.

    Args:
        empty: a migrated database, serialized.
        clock: returns the database's time, in seconds since 1970.

    Attributes:
        commits: the number of those that changed anything, without lost ones.
    """

    def __init__(self, empty: bytes, clock: Callable[[], float]) -> None:
        self.connection = sqlite3.connect(":memory:", isolation_level=None)
        self.connection.deserialize(empty)
        add_functions(self.connection)
        self.connection.create_function("clock_timestamp", 0, clock)
        self.clear()

    def clear(self) -> None:
        """Lose all commits."""
        self.commits = 0
        if self.connection.in_transaction:  # to lose them one by one would make what follows slower and slower
            self.connection.execute("ROLLBACK")
        self.connection.execute("BEGIN")
        self.connection.execute("SAVEPOINT commit_0")

    @override
    async def write(self, *batch: Statement) -> list[list[Row]]:
        changes = self.connection.total_changes
        try:
            rows = [fetch(self.connection, text, parameters) for text, parameters in batch]
        except BaseException:
            self.lose(0)
            raise
        if self.connection.total_changes > changes:
            self.commits += 1
            self.connection.execute(f"SAVEPOINT commit_{self.commits}")
        return rows

    @override
    async def read(self, text: str, parameters: Parameters, *, within_seconds: float | None = None) -> list[Row]:
        return self.query(text, parameters)

    @override
    async def report(self, text: str, parameters: Parameters) -> list[Row]:
        return self.query(text, parameters)

    def query(self, text: str, parameters: Parameters | None = None) -> list[Any]:
        """Read committed rows."""
        return fetch(self.connection, text, parameters or {})

    def lose(self, count: int) -> int:
        """Lose up to so many of the latest commits, and what is not committed. Return how many commits were lost."""
        lost = min(count, self.commits)
        self.commits -= lost
        self.connection.execute(f"ROLLBACK TO commit_{self.commits}")
        return lost
