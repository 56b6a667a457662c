"""The ledger in PostgreSQL: what several replicas share."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from chassis.postgres import Connection, Postgres, open_postgres
from payment_service.domain import Entry, LedgerUnavailable
from payment_service.store import READ_COLUMNS, to_entry, to_row

_FIND = f"SELECT {READ_COLUMNS} FROM charges WHERE charge_key = %s"  # noqa: S608 - a constant
_RECORD = f"""
    INSERT INTO charges ({READ_COLUMNS}, transaction_id) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
    ON CONFLICT DO NOTHING RETURNING {READ_COLUMNS}
"""  # noqa: S608
_VOID = f"""
    UPDATE charges SET state = 'VOIDED', voided_at = now() WHERE charge_key = %s AND state = 'CHARGED'
    RETURNING {READ_COLUMNS}
"""  # noqa: S608

_CHECK_WITHIN_SECONDS = 1


@asynccontextmanager
async def postgres_ledger(url: str) -> AsyncIterator["PostgresLedger"]:
    """A ledger, open within the context; it opens whether or not the server answers yet."""
    async with open_postgres(url) as server:
        yield PostgresLedger(server)


class PostgresLedger:
    """See `domain.Ledger`. Each statement commits by itself; all may run twice, so a lost reply is asked for again."""

    def __init__(self, server: Postgres) -> None:
        self._server = server

    async def record(self, entry: Entry) -> Entry:
        """Store the entry unless its key has one; returns the one that the key has now.

        The insert waits for one of the same key to commit, and no row is ever deleted: the read after it finds that.
        """
        row = await self._fetch(_RECORD, to_row(entry)) or await self._fetch(_FIND, (entry.key,))
        if row is None:
            raise LedgerUnavailable("the ledger lost an entry")
        return to_entry(row)

    async def find(self, key: str) -> Entry | None:
        """Look an entry up."""
        row = await self._fetch(_FIND, (key,))
        return to_entry(row) if row else None

    async def void(self, key: str) -> Entry | None:
        """Turn a CHARGED entry into a VOIDED one, leave any other; returns what the key has now."""
        row = await self._fetch(_VOID, (key,))
        return to_entry(row) if row else await self.find(key)

    async def check(self) -> None:
        """Return if the ledger answers within a second."""
        await self._fetch(_FIND, ("",), within_seconds=_CHECK_WITHIN_SECONDS)

    async def _fetch(
        self, statement: str, parameters: Sequence[Any], *, within_seconds: float | None = None
    ) -> Sequence[Any] | None:
        """Run a statement and read its row."""

        async def work(connection: Connection) -> Sequence[Any] | None:
            return await (await connection.execute(statement, parameters)).fetchone()

        try:
            return await self._server.run(work, within_seconds=within_seconds)
        except TimeoutError as error:
            raise LedgerUnavailable("the ledger does not answer") from error
