# ruff: noqa: S608 - the names of tables and columns are those of the schema
"""A simulated disk: SQLite in memory that outlives processes, records every commit, and can lose the last ones."""

import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from chassis.sql.migrate import migrate
from chassis.sql.sqlite import add_functions

Values = tuple[Any, ...]
Rows = dict["RowId", "Values | None"]


class RowId(NamedTuple):
    """A row, by its table and primary key."""

    table: str
    key: Values


@dataclass(frozen=True, slots=True)
class UniqueIndex:
    """A unique index; `condition` is that of a partial one, otherwise empty."""

    name: str
    columns: tuple[str, ...]
    condition: str


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a schema."""

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    unique: tuple[UniqueIndex, ...]

    @property
    def where_key(self) -> str:
        return " AND ".join(f"{column} = ?" for column in self.key)


@dataclass(frozen=True, slots=True)
class Schema:
    """An empty database whose triggers report every changed row, as the bytes of a SQLite file."""

    image: bytes
    tables: dict[str, Table]


@cache
def schema_of(migrations: Path) -> Schema:
    """Return the schema that a folder of migrations makes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "schema.db"
        migrate(f"sqlite:///{path}", migrations)
        with closing(sqlite3.connect(path)) as stored, closing(sqlite3.connect(":memory:")) as connection:
            stored.backup(connection)
            names = [
                row[0]
                for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
                if not row[0].startswith(("sqlite_", "alembic_"))
            ]
            tables = {name: _describe(connection, name) for name in names}
            for table in tables.values():
                _add_triggers(connection, table)
            return Schema(connection.serialize(), tables)


def _describe(connection: sqlite3.Connection, name: str) -> Table:
    info = connection.execute(f"PRAGMA table_info({name})").fetchall()
    key = [row[1] for row in sorted(info, key=lambda row: row[5]) if row[5]]
    unique = []
    for _, index, is_unique, origin, _ in connection.execute(f"PRAGMA index_list({name})").fetchall():
        if is_unique and origin != "pk":
            columns = tuple(row[2] for row in connection.execute(f"PRAGMA index_info({index})"))
            sql = connection.execute("SELECT sql FROM sqlite_master WHERE name = ?", (index,)).fetchone()[0] or ""
            unique.append(UniqueIndex(index, columns, sql.partition(" WHERE ")[2]))
    return Table(name, tuple(row[1] for row in info), tuple(key), tuple(unique))


def _add_triggers(connection: sqlite3.Connection, table: Table) -> None:
    for event, sides in (("INSERT", ("NEW",)), ("DELETE", ("OLD",)), ("UPDATE", ("OLD", "NEW"))):
        calls = []
        for side in sides:
            columns = (*table.key, *(table.columns if side == "OLD" else ()))
            arguments = ", ".join(f"{side}.{column}" for column in columns)
            calls.append(f"SELECT record_change('{table.name}', {arguments});")
        connection.execute(
            f"CREATE TRIGGER {table.name}_{event} AFTER {event} ON {table.name} BEGIN {' '.join(calls)} END"
        )


class Disk:
    """The committed rows of one database.

    Attributes:
        commits: the rows that each commit changed as they were before, oldest first.
        connection: to the committed rows; changes by it must go through `recording` and `append`.
    """

    def __init__(self, schema: Schema, clock: Callable[[], float]) -> None:
        self.schema = schema
        self.commits: list[Rows] = []
        self.connection = sqlite3.connect(":memory:", isolation_level=None, cached_statements=512)
        self.connection.deserialize(schema.image)
        self.connection.create_function("record_change", -1, self._record)
        add_functions(self.connection, clock)
        self._changed: Rows | None = None

    def transact(self, work: Callable[[sqlite3.Connection], Any]) -> Any:
        """Run work in one transaction, and return its result. If it raises, nothing has changed."""
        connection = self.connection
        connection.execute("BEGIN")
        try:
            with self.recording() as changed:
                result = work(connection)
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")
        if changed:
            self.commits.append(changed)
        return result

    def append(self, rows: Rows) -> None:
        """Commit rows."""
        if rows:
            self.commits.append({row: self.read_row(row) for row in rows})
        self.write_rows(rows.items())

    def lose_suffix(self, count: int) -> int:
        """Undo the last commits, as a restored back-up or a failover does. Return how many there were to lose."""
        lost = min(count, len(self.commits))
        for _ in range(lost):
            self.write_rows(reversed(self.commits.pop().items()))
        return lost

    @contextmanager
    def recording(self) -> Iterator[Rows]:
        """Yield the rows that statements within the context change, as they were before."""
        self._changed = {}
        try:
            yield self._changed
        finally:
            self._changed = None

    def read_row(self, row: RowId) -> Values | None:
        """Return a row's values, None if there is none."""
        table = self.schema.tables[row.table]
        found = self.connection.execute(f"SELECT * FROM {table.name} WHERE {table.where_key}", row.key).fetchone()
        return None if found is None else tuple(found)

    def write_rows(self, rows: Iterable[tuple[RowId, Values | None]]) -> None:
        """Replace rows without recording it."""
        for row, values in rows:
            table = self.schema.tables[row.table]
            if values is None:
                self.connection.execute(f"DELETE FROM {table.name} WHERE {table.where_key}", row.key)
            else:
                marks = ", ".join("?" * len(values))
                self.connection.execute(f"INSERT OR REPLACE INTO {table.name} VALUES ({marks})", values)

    def query(self, text: str, parameters: Any = ()) -> list[Any]:
        """Read committed rows by column name."""
        cursor = self.connection.cursor()
        cursor.row_factory = sqlite3.Row
        return cursor.execute(text, parameters).fetchall()

    def unique_keys(self, row: RowId) -> list[RowId]:
        """Return the unique values that a row occupies, besides its primary key."""
        table = self.schema.tables[row.table]
        keys = []
        for index in table.unique:
            condition = f" AND ({index.condition})" if index.condition else ""
            found = self.connection.execute(
                f"SELECT {', '.join(index.columns)} FROM {table.name} WHERE {table.where_key}{condition}", row.key
            ).fetchone()
            if found is not None:
                keys.append(RowId(index.name, tuple(found)))
        return keys

    def close(self) -> None:
        self.connection.close()

    def _record(self, table: str, *values: Any) -> None:
        """Record a changed row: its key, and its values before unless it is new."""
        if self._changed is not None:
            length = len(self.schema.tables[table].key)
            self._changed.setdefault(RowId(table, values[:length]), values[length:] or None)


def rows_of(cursor: sqlite3.Cursor, text: str, parameters: Any) -> Sequence[Any]:
    """Run a statement and return its rows by column name."""
    cursor.row_factory = sqlite3.Row
    return cursor.execute(text, parameters).fetchall()
