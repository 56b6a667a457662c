"""Databases as services see them: models of SQLite and of PostgreSQL over a simulated disk."""

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from typing_extensions import override

from chassis.process import shared_result
from chassis.sql.database import Database, Parameters, Row, Statement
from checkout_service.ports import JournalUnavailable
from shop_lab.simulation.disk import Disk, RowId, Rows, rows_of
from shop_lab.simulation.faults import Faults
from shop_lab.simulation.network import on_behalf_of
from shop_lab.simulation.processes import Process

_ANSWER_WITHIN_SECONDS = 4.0
_RETRY_SECONDS = 0.1
_SKIP_LOCKED = "/* SKIP LOCKED */"
_FOR_UPDATE = "/* FOR UPDATE */"


@cache
def _render(text: str) -> str:
    return text.replace("FOR UPDATE SKIP LOCKED", _SKIP_LOCKED).replace("FOR UPDATE", _FOR_UPDATE)


class SimulatedDatabase(Database):
    """Runs statements of one process; `_transact` is that of a dialect, `name` is the service whose database it is."""

    def __init__(
        self,
        disk: Disk,
        process: Process,
        faults: Faults,
        name: str = "checkout",
        unavailable: Callable[[], Exception] = JournalUnavailable,
    ) -> None:
        self._unavailable = unavailable
        self._disk = disk
        self._process = process
        self._faults = faults
        self._name = name
        self._steps: Counter[str] = Counter()

    @override
    async def write(self, *batch: Statement) -> list[list[Row]]:
        give_up_at = asyncio.get_running_loop().time() + _ANSWER_WITHIN_SECONDS
        while True:
            await self._pause("write")
            if self._name not in self._faults.down:
                try:
                    done = await self._transact(batch)
                except sqlite3.IntegrityError:  # a unique value: the next try sees the row that has it
                    done = None
                if done is not None and not self._faults.loses_reply(self._step("reply")):
                    await self._pause("confirm")
                    return done
            await self._wait_for_connection(give_up_at)

    @override
    async def report(self, text: str, parameters: Parameters) -> list[Row]:
        return await self.read(text, parameters)

    @override
    async def read(self, text: str, parameters: Parameters, *, within_seconds: float | None = None) -> list[Row]:
        give_up_at = asyncio.get_running_loop().time() + _ANSWER_WITHIN_SECONDS
        await self._pause("read")
        while self._name in self._faults.down:
            await self._wait_for_connection(give_up_at)
        rows = self._disk.query(_render(text), parameters)
        await self._pause("rows")
        return rows

    async def _transact(self, batch: tuple[Statement, ...]) -> list[list[Row]] | None:
        """Run one transaction; None if it was rolled back and may be repeated."""
        raise NotImplementedError

    def _step(self, name: str) -> str:
        step = f"{self._process.name}({on_behalf_of.get()})/{name}"
        self._steps[step] += 1
        return f"{step}#{self._steps[step]}"

    async def _pause(self, name: str) -> None:
        await asyncio.sleep(self._faults.seconds_of(self._step(name)))
        await self._process.running()

    async def _wait_for_connection(self, give_up_at: float) -> None:
        if asyncio.get_running_loop().time() + _RETRY_SECONDS >= give_up_at:
            raise self._unavailable()
        await asyncio.sleep(_RETRY_SECONDS)
        await self._process.running()


class SqliteModel(SimulatedDatabase):
    """SQLite: transactions run one after the other, and a cancelled caller does not stop its transaction."""

    @override
    async def write(self, *batch: Statement) -> list[list[Row]]:
        # The writer's thread finishes what it began.
        return await shared_result(asyncio.create_task(super().write(*batch)))

    @override
    async def _transact(self, batch: tuple[Statement, ...]) -> list[list[Row]]:
        def work(connection: sqlite3.Connection) -> list[list[Row]]:
            return [[*rows_of(connection.cursor(), _render(text), parameters)] for text, parameters in batch]

        done: list[list[Row]] = self._disk.transact(work)
        return done


@dataclass(eq=False)
class _Transaction:
    changes: Rows = field(default_factory=dict)
    locks: set[RowId] = field(default_factory=set)
    waits_for: "_Transaction | None" = None
    ended: "asyncio.Future[None]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    aborted: bool = False


class PostgresServer:
    """Row locks and read-committed snapshots of all the transactions in progress on a disk.

    Each statement sees what was committed when it began, and the changes of its own transaction. It waits for rows and
    unique values that another transaction has changed; then it runs again on its old snapshot with the new versions of
    these rows, as PostgreSQL's READ COMMITTED does.
    """

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.holders: dict[RowId, _Transaction] = {}

    def run(self, transaction: _Transaction, text: str, parameters: Parameters) -> "list[Row] | _Conflict":
        """Run a statement now: return its rows, or the conflict to wait for."""
        return self.run_again(transaction, text, parameters, _Conflict(len(self.disk.commits)))

    def run_again(
        self, transaction: _Transaction, text: str, parameters: Parameters, conflict: "_Conflict"
    ) -> "list[Row] | _Conflict":
        """Run a statement on the snapshot of its first run, with new versions of the rows that it waited for."""
        sql, connection = _render(text), self.disk.connection
        connection.execute("BEGIN")
        try:
            if not sql.lstrip().startswith("INSERT"):
                self._restore_snapshot(conflict)
            self.disk.write_rows(transaction.changes.items())
            if _SKIP_LOCKED in sql:
                self._hide_locked(transaction)
            with self.disk.recording() as changed:
                rows = [*rows_of(connection.cursor(), sql, parameters)]
            if _FOR_UPDATE in sql:
                changed.update(dict.fromkeys(RowId("orders", (row["order_id"],)) for row in rows))
            after = {row: self.disk.read_row(row) for row in changed}
            needed = [*changed, *(key for row in changed for key in self.disk.unique_keys(row))]
        finally:
            connection.execute("ROLLBACK")
        for lock in needed:
            holder = self.holders.get(lock)
            if holder is not None and holder is not transaction:
                # The values of an index that the holder occupies may be in any of its rows.
                rows_of_lock = {lock} if lock.table in self.disk.schema.tables else set(holder.changes)
                return replace(conflict, holder=holder, refreshed=conflict.refreshed | rows_of_lock)
        self.holders.update(dict.fromkeys(needed, transaction))
        transaction.locks.update(needed)
        transaction.changes.update(after)
        return rows

    def end(self, transaction: _Transaction, *, commit: bool) -> None:
        """Commit or roll back, and wake those who wait."""
        transaction.waits_for = None
        if transaction.ended.done():
            return
        if commit:
            self.disk.append(transaction.changes)
        transaction.aborted = not commit
        for lock in transaction.locks:
            del self.holders[lock]
        transaction.ended.set_result(None)

    def abort_all(self) -> None:
        """Roll back all transactions, as the end of the server does."""
        for transaction in dict.fromkeys(self.holders.values()):
            self.end(transaction, commit=False)

    def is_deadlock(self, transaction: _Transaction) -> bool:
        """Return whether the transactions that this one waits for wait for it."""
        waiting = transaction.waits_for
        while waiting is not None and waiting is not transaction:
            waiting = waiting.waits_for
        return waiting is transaction

    def _restore_snapshot(self, conflict: "_Conflict") -> None:
        for before in reversed(self.disk.commits[conflict.snapshot :]):
            self.disk.write_rows(item for item in reversed(before.items()) if item[0] not in conflict.refreshed)

    def _hide_locked(self, transaction: _Transaction) -> None:
        locked = [lock for lock, holder in self.holders.items() if holder is not transaction]
        self.disk.write_rows((lock, None) for lock in locked if lock.table in self.disk.schema.tables)


@dataclass(frozen=True, slots=True)
class _Conflict:
    """A statement that has to wait: the number of commits in its snapshot, and for whom and for what it waits."""

    snapshot: int
    holder: _Transaction | None = None
    refreshed: frozenset[RowId] = frozenset()


class PostgresModel(SimulatedDatabase):
    """PostgreSQL: concurrent transactions interleave between statements, with the isolation READ COMMITTED."""

    def __init__(self, server: PostgresServer, process: Process, faults: Faults) -> None:
        super().__init__(server.disk, process, faults)
        self._server = server

    @override
    async def _transact(self, batch: tuple[Statement, ...]) -> list[list[Row]] | None:
        transaction = _Transaction()
        try:
            results = []
            for text, parameters in batch:
                rows = await self._run(transaction, text, parameters)
                if rows is None:
                    return None
                results.append(rows)
                await self._pause("statement")
                if transaction.aborted:  # it must not lock anything any more: nothing would release it
                    return None
            self._server.end(transaction, commit=True)
            return results
        finally:
            self._server.end(transaction, commit=False)

    async def _run(self, transaction: _Transaction, text: str, parameters: Mapping[str, Any]) -> list[Row] | None:
        result = self._server.run(transaction, text, parameters)
        while isinstance(result, _Conflict):
            if transaction.aborted or result.holder is None:
                return None
            transaction.waits_for = result.holder
            if self._server.is_deadlock(transaction):
                return None
            await asyncio.shield(result.holder.ended)
            transaction.waits_for = None
            result = self._server.run_again(transaction, text, parameters, result)
        return result
