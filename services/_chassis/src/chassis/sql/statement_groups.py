"""Group commit on PostgreSQL: a statement of many callers runs in one transaction, which the server flushes once.

See the decision in the README.
"""

import asyncio
import time
from collections.abc import Sequence
from contextvars import Context
from dataclasses import dataclass

import asyncpg

from chassis.rpc.batcher import Batch, Batcher, Waiting
from chassis.sql.postgres import ANSWER_WITHIN_SECONDS, Parameters, Postgres
from chassis.sql.postgres_connection import Record
from chassis.telemetry.store_operations import record_wait, sql_operation

DELAY_SECONDS = 0.02
"""How long a statement waits for the group in progress. One that waits for a lock delays later ones no longer."""

_MAX_STATEMENTS = 50


@dataclass(slots=True)
class _Statement:
    """A statement's text and parameters. Times are readings of time.perf_counter; `started` is 0 until it runs."""

    text: str
    parameters: Parameters
    arrived: float
    started: float = 0.0


_Waiting = Waiting[_Statement, Record | None]


class StatementGroups:
    """Runs statements at once while no group is in progress, otherwise with equal ones that wait for its end.

    Args:
        server: runs the groups.
        key: the parameter that identifies the row which a statement writes, and the column of that row.
    """

    def __init__(self, server: Postgres, key: str) -> None:
        self._server = server
        self._key = key
        self._batcher: Batcher[_Statement, Record | None] = Batcher(
            self._begin, max_items=_MAX_STATEMENTS, delay_seconds=DELAY_SECONDS, eager=True
        )

    async def fetch(self, text: str, parameters: Parameters, texts: Sequence[str] = ()) -> Record | None:
        """Run a statement that writes a row or none, and return the row once it is on disk.

        The statement must be safe to repeat, as for `Postgres.run`, and return the column `key`. If another one of its
        group fails, all are repeated one by one. Cancelling the caller does not stop a statement that runs.

        Args:
            text: the statement.
            parameters: by name.
            texts: what the span says that it is; by default the statement itself.

        Raises TimeoutError after ANSWER_WITHIN_SECONDS, and errors of the server.
        """
        statement = _Statement(text, parameters, time.perf_counter())
        store = self._server.store
        async with asyncio.timeout(ANSWER_WITHIN_SECONDS) as limit:
            with store.measure(sql_operation(*(texts or [text])), limit):
                try:
                    return await self._batcher.add(statement)
                finally:
                    record_wait(store.tracer, "flush.wait", statement.arrived, statement.started)

    async def close(self) -> None:
        """End the groups whose callers are gone, before their server is closed."""
        await self._batcher.close()

    def _begin(self, batch: Batch[_Statement, Record | None]) -> "asyncio.Task[None]":
        # Each caller has a span of its own.
        return asyncio.get_running_loop().create_task(self._run(batch), context=Context())

    async def _run(self, batch: Batch[_Statement, Record | None]) -> None:
        for group in self._groups(batch):
            if waiting := [each for each in group if not each.result.done()]:  # their callers are still there
                await self._run_group(waiting)

    def _groups(self, batch: Batch[_Statement, Record | None]) -> list[list[_Waiting]]:
        """Separate what cannot run together: other statements, and those of the same row, whose results would be mixed.

        All replicas write, and so lock, the rows of a group in the order of their keys.
        """
        groups: list[tuple[str, dict[str, _Waiting]]] = []
        for waiting in sorted(batch, key=self._key_of):
            text, key = waiting.item.text, self._key_of(waiting)
            group = next((group for other, group in groups if other == text and key not in group), None)
            if group is None:
                groups.append((text, {key: waiting}))
            else:
                group[key] = waiting
        return [list(group.values()) for _, group in groups]

    def _key_of(self, waiting: _Waiting) -> str:
        key: str = waiting.item.parameters[self._key]
        return key

    async def _run_group(self, group: Sequence[_Waiting]) -> None:
        started = time.perf_counter()
        for waiting in group:
            waiting.item.started = started
        try:
            rows = await self._server.fetch_each(
                group[0].item.text, [waiting.item.parameters for waiting in group], measured=False
            )
        except asyncpg.PostgresError as error:
            if len(group) == 1:
                _fail(group, error)
                return
            for waiting in group:
                await self._run_group([waiting])
        except Exception as error:  # noqa: BLE001 - it reaches every caller
            _fail(group, error)
        else:
            by_key = {row[self._key]: row for row in rows}
            for waiting in group:
                if not waiting.result.done():
                    waiting.result.set_result(by_key.get(self._key_of(waiting)))


def _fail(group: Sequence[_Waiting], error: Exception) -> None:
    for waiting in group:
        if not waiting.result.done():
            waiting.result.set_exception(error)
