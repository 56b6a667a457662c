"""One interface to SQLite and PostgreSQL, for the stores of services; `chassis.sql.opening` opens it.

SQL is written once, in what both databases understand:

- `:name` is a parameter.
- Time is NOW. SQLite gets functions for the time that are named as PostgreSQL's.
- A list is one parameter: a JSON object, see `listed`, whose elements are the rows of `json_each(:items)`.
- `FOR UPDATE` and `FOR UPDATE SKIP LOCKED` are left out on SQLite, where transactions do not overlap.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import orjson

Parameters: TypeAlias = Mapping[str, Any]
Statement: TypeAlias = tuple[str, Parameters]
"""SQL, and values for its parameters by name; it ignores other values."""

# The database's clock, in seconds since 1970. As a subquery it is evaluated once for a statement, not for each row:
# otherwise PostgreSQL would search no index for it.
NOW = "(SELECT date_part('epoch', clock_timestamp()))"


class Row(Protocol):
    """A row whose values are read by column name."""

    def __getitem__(self, column: str, /) -> Any: ...


class StatementRejected(Exception):
    """The database responds, but cannot run a statement: one row may be the reason, or a table that is missing.

    The message quotes no values of parameters or rows: errors are logged.
    """


def is_rejected(error: BaseException) -> bool:
    """Return whether the cause of a store's error is that a statement was rejected: for other rows it may run."""
    return isinstance(error.__cause__, StatementRejected)


class Database(Protocol):
    """Runs statements. What all methods raise when they cannot is an argument of `opening.open_database`.

    They cannot while a server does not answer in time, a file is locked or damaged, or a disk is full: the outcome of a
    write is then unknown. And they cannot run a statement that the database rejects, see `is_rejected`: nothing was
    written.
    """

    async def write(self, *batch: Statement) -> Sequence[Sequence[Row]]:
        """Run statements in one transaction; return the rows of each as soon as they are on disk.

        Statements are repeated when a connection is lost, so they must be repeatable.
        """

    async def read(self, text: str, parameters: Parameters, *, within_seconds: float | None = None) -> Sequence[Row]:
        """Run a query that an index answers: on SQLite it runs on the event loop.

        `within_seconds` limits the wait for a server; by default ANSWER_WITHIN_SECONDS of `postgres`.
        """

    async def report(self, text: str, parameters: Parameters) -> Sequence[Row]:
        """Run a query that may take long: it does not delay `read` and `write`."""


def listed(elements: Iterable[object]) -> str:
    """Return elements as the parameter `items`.

    The keys of the object are their places: on both databases json_each() has rows for objects, on PostgreSQL for
    nothing else.
    """
    return orjson.dumps({str(place): element for place, element in enumerate(elements)}).decode()
