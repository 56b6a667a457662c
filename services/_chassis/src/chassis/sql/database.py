"""One interface to SQLite and PostgreSQL. Each statement is written once, in SQL that both databases accept.

- `:name` is a parameter.
- `NOW` is the current time. PostgreSQL's time functions also work in SQLite, because `sqlite.add_functions` adds them.
- To pass a list, use `listed`, which encodes it as one parameter; `json_each(:items)` returns one row per element.
- `FOR UPDATE` and `FOR UPDATE SKIP LOCKED` are removed for SQLite, where write transactions never overlap.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import orjson

Parameters: TypeAlias = Mapping[str, Any]
Statement: TypeAlias = tuple[str, Parameters]
"""SQL and its parameters by name. Parameters that the SQL doesn't use are ignored."""

# The database's current time, in seconds since 1970. Because this is a subquery, PostgreSQL evaluates it once per
# statement instead of once per row, and can use an index.
NOW = "(SELECT date_part('epoch', clock_timestamp()))"


class Row(Protocol):
    def __getitem__(self, column: str, /) -> Any: ...
    def keys(self) -> Iterable[str]: ...


class StatementRejected(Exception):
    """The database is up but has rejected a statement. The message is logged, so it never quotes parameters or rows."""


def is_rejected(error: BaseException) -> bool:
    """Return whether a rejected statement caused this error. The same statement may succeed for other rows."""
    return isinstance(error.__cause__, StatementRejected)


class Database(Protocol):
    """Runs statements. When a method fails, it raises the `unavailable` error passed to `opening.open_database`.

    If `is_rejected(error)` is true, the failed write changed nothing; otherwise, its outcome is unknown. Statements
    must be idempotent, because they are retried after a connection is lost.
    """

    async def write(self, *batch: Statement) -> Sequence[Sequence[Row]]:
        """Run statements in one transaction, flush it to disk, and return each statement's rows."""

    async def read(self, text: str, parameters: Parameters, *, within_seconds: float | None = None) -> Sequence[Row]:
        """Run a query. It must use an index: on SQLite it runs on the event loop, which a slow query would block.

        `within_seconds` limits the wait for a PostgreSQL server; the default is `postgres.ANSWER_WITHIN_SECONDS`.
        """

    async def report(self, text: str, parameters: Parameters) -> Sequence[Row]:
        """Run a slow query without delaying `read` and `write`."""


def listed(elements: Iterable[object]) -> str:
    """Encode a list parameter as a JSON object keyed by position, because PostgreSQL's json_each needs an object."""
    return orjson.dumps({str(place): element for place, element in enumerate(elements)}).decode()
