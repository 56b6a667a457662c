# ruff: noqa: S608 - the SQL is built only from constants
"""Reads stores that have one row for each idempotency key: payment's ledger and shipping's manifest."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import structlog

from chassis.sql.database import Database, Row, listed
from chassis.values.paging import MAX_SECONDS, KeyedEntry, Position, is_time

log = structlog.get_logger()

EntryT = TypeVar("EntryT", bound=KeyedEntry)

RECORDED_SECONDS = "date_part('epoch', recorded_at) AS recorded_seconds"
_CHECK_WITHIN_SECONDS = 1


@dataclass(frozen=True)
class Table:
    """A table with one row for each idempotency key. It must have the columns `state` and `recorded_at`.

    Attributes:
        key, recorded_id: the names of the columns that hold an entry's key, and its transaction or tracking id.
        columns: the columns to read, in addition to RECORDED_SECONDS.
        listed: the `state` of the entries that appear in lists.
    """

    name: str
    key: str
    recorded_id: str
    columns: str
    listed: str


class KeyedStore(Generic[EntryT]):
    """Reads a table's entries. If a row can't be decoded, lists contain `undecodable(key)` in its place."""

    def __init__(
        self, database: Database, table: Table, decode: Callable[[Row], EntryT], undecodable: Callable[[str], EntryT]
    ) -> None:
        self._database = database
        self._table = table
        self._decode, self._undecodable = decode, undecodable
        key, columns = table.key, f"{table.columns}, {RECORDED_SECONDS}"
        self._find = f"SELECT {columns} FROM {table.name} WHERE {key} = :key"
        self._list = f"""
            SELECT {columns}, {table.recorded_id} FROM {table.name}
            WHERE state = '{table.listed}' AND (recorded_at, {key}) > (to_timestamp(:at), :key)
            ORDER BY recorded_at, {key} LIMIT :limit
        """
        # The range (>= and <) uses an index. In any collation, it includes all keys that begin with the order id and a
        # colon. `substr` then excludes the range's other keys. CASE hides the state condition from the planner: without
        # statistics, PostgreSQL would expect few rows to match `state = …`, and would scan the whole table.
        self._list_of_orders = f"""
            SELECT {columns}, {table.recorded_id} FROM json_each(:items) CROSS JOIN {table.name}
            WHERE {key} >= value->>'id' AND {key} < (value->>'id') || 'z'
                AND substr({key} || ':', 1, length(value->>'id') + 1) = (value->>'id') || ':'
            AND CASE state WHEN '{table.listed}' THEN TRUE ELSE FALSE END ORDER BY recorded_at, {key}
        """

    async def find(self, key: str) -> EntryT | None:
        rows = await self._database.read(self._find, {"key": key})
        return self._decode(rows[0]) if rows else None

    async def scan(self, after: Position, limit: int) -> list[EntryT]:
        """Return up to `limit` entries that come after a position, oldest first."""
        rows = await self._database.report(self._list, {"at": after.at, "key": after.key, "limit": limit})
        return [self._decode_listed(row) for row in rows]

    async def list_of_orders(self, order_ids: Sequence[str]) -> list[EntryT]:
        """Return the orders' entries. An entry's key is its order id, or begins with the order id and a colon."""
        rows = await self._database.report(self._list_of_orders, {"items": listed({"id": id_} for id_ in order_ids)})
        return [self._decode_listed(row) for row in rows]

    async def check(self) -> None:
        await self._database.read(self._find, {"key": ""}, within_seconds=_CHECK_WITHIN_SECONDS)

    def _decode_listed(self, row: Row) -> EntryT:
        key, recorded_id, at = row[self._table.key], row[self._table.recorded_id], row["recorded_seconds"]
        entry = replace(self._undecodable(str(key)), recorded_at=at if is_time(at) else MAX_SECONDS)
        try:
            if is_time(at) and isinstance(key, str) and isinstance(recorded_id, str):  # SQLite columns hold any type
                entry = self._decode(row)
        except Exception:
            log.exception("entry cannot be decoded", key=key)
        return replace(entry, recorded_id=str(recorded_id))
