"""One interface to SQLite and PostgreSQL, for the stores of services; `chassis.sql.opening` opens it.

SQL is written once, in what both databases understand:

- `:name` is a parameter.
- NOW is the time. SQLite gets functions for it that are named as PostgreSQL's.
- A list is one parameter: a JSON object, see `listed`, whose elements are the rows of `json_each(:items)`.
- `FOR UPDATE` and `FOR UPDATE SKIP LOCKED` are removed on SQLite, where transactions don't overlap.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import orjson

Parameters: TypeAlias = Mapping[str, Any]
Statement: TypeAlias = tuple[str, Parameters]
"""SQL, and the values of its parameters by name; other values are ignored."""

# The database's clock, in seconds since 1970. A subquery is evaluated once per statement, not for each row: otherwise
# PostgreSQL couldn't use an index.
NOW = "(SELECT date_part('epoch', clock_timestamp()))"


class Row(Protocol):
    """A row whose values are read by column name."""

    def __getitem__(self, column: str, /) -> Any: ...


class StatementRejected(Exception):
    """The database responds, but can't run a statement, because of one row or a missing table, for example.

    The message is logged, so it quotes no values of parameters or rows.
    """


def is_rejected(error: BaseException) -> bool:
    """Return whether a store's error was caused by a rejected statement, which may succeed for other rows."""
    return isinstance(error.__cause__, StatementRejected)


class Database(Protocol):
    """Runs statements. All methods raise the error that was passed to `opening.open_database`.

    They raise it while a server doesn't answer in time, a file is locked or damaged, or a disk is full; the outcome of
    a write is then unknown. They also raise it if the database rejects a statement, see `is_rejected`; nothing was
    written then.
    """

    async def write(self, *batch: Statement) -> Sequence[Sequence[Row]]:
        """Run statements in one transaction. Return the rows of each once they are on disk.

        Statements must be idempotent: they are repeated when a connection is lost.
        """

    async def read(self, text: str, parameters: Parameters, *, within_seconds: float | None = None) -> Sequence[Row]:
        """Run a query that an index answers: on SQLite, it blocks the event loop.

        `within_seconds` limits the wait for a server; the default is ANSWER_WITHIN_SECONDS of `postgres`.
        """

    async def report(self, text: str, parameters: Parameters) -> Sequence[Row]:
        """Run a query that may take long, without delaying `read` and `write`."""


def listed(elements: Iterable[object]) -> str:
    """Return elements as the value of a list parameter, such as `:items`.

    It is an object whose keys are positions, because json_each() of PostgreSQL accepts nothing else.
    """
    return orjson.dumps({str(place): element for place, element in enumerate(elements)}).decode()
