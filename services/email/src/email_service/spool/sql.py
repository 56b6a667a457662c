"""The spool as a table of letters, on either database."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from typing_extensions import override

from email_service.letters import (
    RETENTION_SECONDS,
    Letter,
    LetterRecord,
    LetterState,
    NewLetter,
    Spool,
    SpoolStatistics,
)
from email_service.spool import statements
from email_service.spool.database import Database, Row

CLAIM_SECONDS = 30.0
"""For longer than it takes to reach the relay; a letter claimed by a process that died is claimed again after it."""

SENDING_SECONDS = 660.0
"""For longer than the relay's response is awaited; after it a letter of a process that died is in doubt."""

_HORIZON_SECONDS = 7_200.0
_DELETIONS = 1_000


class SqlSpool(Spool):
    """The spool in a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @override
    async def add(self, letters: Sequence[NewLetter]) -> Mapping[str, LetterState]:
        # In the order of their ids: transactions that lock the same letters in different orders could deadlock.
        in_order = sorted(letters, key=lambda letter: letter.letter_id)
        parameters = [
            {"letter_id": letter.letter_id, "recipient": letter.recipient, "message": letter.message}
            for letter in in_order
        ]
        rows = await self._database.run_each(statements.ADD, parameters)
        return {letter.letter_id: LetterState(row["state"]) for letter, row in zip(in_order, rows, strict=True)}

    @override
    async def claim(self, limit: int) -> Sequence[Letter]:
        rows = await self._run(
            statements.CLAIM, limit=limit, claim_seconds=CLAIM_SECONDS, horizon_seconds=_HORIZON_SECONDS
        )
        return [
            Letter(row["letter_id"], row["recipient"], bytes(row["message"]), row["attempt"], row["deferrals"])
            for row in rows
        ]

    @override
    async def begin_sending(self, letter: Letter) -> bool:
        parameters = {**_claim_of(letter), "sending_seconds": SENDING_SECONDS}
        return bool(await self._run(statements.BEGIN_SENDING, **parameters))

    @override
    async def finish(self, letter: Letter, state: LetterState, reason: str = "") -> None:
        await self._run(statements.FINISH, **_claim_of(letter), state=state.value, reason=reason)

    @override
    async def postpone(self, letter: Letter, *, delay_seconds: float, reason: str, deferred: bool) -> None:
        await self._run(
            statements.POSTPONE,
            **_claim_of(letter),
            delay_seconds=delay_seconds,
            reason=reason,
            deferrals=int(deferred),
        )

    @override
    async def give_up_overdue(self) -> Sequence[str]:
        rows = await self._run(statements.GIVE_UP_OVERDUE, horizon_seconds=_HORIZON_SECONDS)
        return [row["letter_id"] for row in rows]

    @override
    async def delete_old(self) -> Mapping[LetterState, int]:
        rows = await self._run(statements.DELETE_OLD, retention_seconds=RETENTION_SECONDS, limit=_DELETIONS)
        return Counter(LetterState(row["state"]) for row in rows)

    @override
    async def requeue(self, letter_id: str) -> bool:
        return bool(await self._run(statements.REQUEUE, letter_id=letter_id))

    @override
    async def list_letters(self, state: LetterState, limit: int) -> Sequence[LetterRecord]:
        return [_record(row) for row in await self._run(statements.LIST, state=state.value, limit=limit)]

    @override
    async def read(self, letter_id: str) -> LetterRecord | None:
        rows = await self._run(statements.READ, letter_id=letter_id)
        return _record(rows[0], bytes(rows[0]["message"] or b"")) if rows else None

    @override
    async def statistics(self) -> SpoolStatistics:
        rows = await self._run(statements.STATISTICS)
        oldest = {LetterState(row["state"]): float(row["oldest_seconds"]) for row in rows}
        letters = {LetterState(row["state"]): int(row["letters"]) for row in rows}
        return SpoolStatistics(letters, max(0.0, oldest.get(LetterState.QUEUED, 0.0)))

    @override
    async def check(self) -> None:
        await self._run(statements.CHECK)

    async def _run(self, text: str, **parameters: Any) -> Sequence[Row]:
        return await self._database.run(text, parameters)


def _claim_of(letter: Letter) -> dict[str, Any]:
    return {"letter_id": letter.letter_id, "attempt": letter.attempt}


def _record(row: Row, message: bytes = b"") -> LetterRecord:
    return LetterRecord(
        row["letter_id"],
        LetterState(row["state"]),
        row["recipient"],
        row["attempt"],
        row["reason"],
        row["accepted_at"],
        row["changed_at"],
        message,
    )
