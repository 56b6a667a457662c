"""One interface to SQLite and PostgreSQL for the services' stores; `chassis.sql.opening` opens databases.

Every statement is written once, in SQL that both databases understand:

- `:name` is a parameter.
- NOW is the current time. For SQLite, `chassis.sql.sqlite` adds PostgreSQL's time functions.
- A list is passed as one parameter, a JSON object (see `listed`); `json_each(:items)` returns one row per element.
- `FOR UPDATE` and `FOR UPDATE SKIP LOCKED` are removed for SQLite, where write transactions don't overlap.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import orjson

Parameters: TypeAlias = Mapping[str, Any]
Statement: TypeAlias = tuple[str, Parameters]
"""SQL and its parameter values by name; values for unknown parameters are ignored."""

# The database clock's time, in seconds since 1970. It is a subquery so that PostgreSQL evaluates it once per statement,
# not for each row, and can use an index.
NOW = "(SELECT date_part('epoch', clock_timestamp()))"


class Row(Protocol):
    """A row whose values are read by column name."""

    def __getitem__(self, column: str, /) -> Any: ...


class StatementRejected(Exception):
    """The database responds, but can't run a statement, for example because of one row or a missing table.

    The message is logged, so it never quotes parameter values or rows.
    """


def is_rejected(error: BaseException) -> bool:
    """Return whether a rejected statement caused this error; the statement may succeed for other rows."""
    return isinstance(error.__cause__, StatementRejected)


class Database(Protocol):
    """Runs statements. On failure, every method raises the `unavailable` error passed to `opening.open_database`.

    If the server doesn't answer in time, the file is locked or damaged, or the disk is full, a write's outcome is
    unknown. If the database has rejected a statement (see `is_rejected`), nothing was written.
    """

    async def write(self, *batch: Statement) -> Sequence[Sequence[Row]]:
        """Run statements in one transaction. Once it is on disk, return each statement's rows.

        Statements must be idempotent: they are repeated if the connection is lost.
        """

    async def read(self, text: str, parameters: Parameters, *, within_seconds: float | None = None) -> Sequence[Row]:
        """Run a query. It must use an index, because on SQLite it blocks the event loop.

        `within_seconds` limits the wait for a PostgreSQL server; the default is `postgres.ANSWER_WITHIN_SECONDS`.
        """

    async def report(self, text: str, parameters: Parameters) -> Sequence[Row]:
        """Run a query that may take a long time, without delaying `read` and `write`."""


def listed(elements: Iterable[object]) -> str:
    """Encode elements as the value of a list parameter, such as `:items`.

    The result is a JSON object keyed by position, because PostgreSQL's json_each() accepts only objects.
    """
    return orjson.dumps({str(place): element for place, element in enumerate(elements)}).decode()
