"""The spool: a table of messages, in a SQLite file or in PostgreSQL."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import structlog

from chassis.background import log_errors
from chassis.sql.database import Database, Parameters, Row, listed
from chassis.sql.opening import open_database
from chassis.sql.queue_head import QueueHead
from chassis.sql.retention import Deletions
from chassis.sql.url import sqlite_path
from chassis.telemetry.instruments import Telemetry
from chassis.values.paging import is_time
from email_service.domain import current_digests
from email_service.messages import ClaimedMessage, MessageRecord, MessageState, NewMessage, SpoolUnavailable
from email_service.spool import statements

log = structlog.get_logger()

MIGRATIONS = Path(__file__).parent / "migrations"

CLAIM_SECONDS = 75.0
"""A claim expires after this long: reaching the relay takes less time, so the claiming process must have died."""

SENDING_SECONDS = 660.0
"""A message that is still SENDING after this long becomes IN_DOUBT: no process waits this long for the relay's
response, so the sending process must have died."""

_HORIZON_SECONDS = 7_200.0
_MAX_CHANGES = 1_000


@asynccontextmanager
async def open_spool(url: str, telemetry: Telemetry | None = None) -> AsyncIterator["Spool"]:
    """Open the spool in a migrated database. See chassis.sql.url for the URL formats."""
    async with open_database(url, telemetry, unavailable=SpoolUnavailable) as opened:
        if sqlite_path(url) is not None:  # no other process uses a SQLite file, so all claims in it are stale
            await log_errors(opened.write((statements.RELEASE_CLAIMS, {})), "claims remain until they expire")
        yield Spool(opened)


class Spool:
    """Stores messages durably: when a method returns, its changes are on disk. Methods may raise SpoolUnavailable.

    Attributes:
        wake: set when a message may be ready to send.
    """

    def __init__(self, database: Database) -> None:
        self.wake = asyncio.Event()
        self.deletions = Deletions(
            database, "messages", "letter_id", statements.OLD, [statements.DELETE_OLD], _log_unsent
        )
        self._database = database
        self._heads: defaultdict[str, QueueHead] = defaultdict(QueueHead)

    async def add(self, messages: Sequence[NewMessage]) -> Mapping[str, MessageState]:
        """Store the messages whose ids are new, in one transaction. Return the states of all given messages, by id."""
        # Sort by id: transactions that lock the same messages in different orders could deadlock.
        in_order = sorted(messages, key=lambda message: message.message_id)
        added = await self._database.write(*((statements.ADD, vars(message)) for message in in_order))
        self.wake.set()
        return {message.message_id: MessageState(row["state"]) for message, (row,) in zip(in_order, added, strict=True)}

    async def claim(self, limit: int) -> Sequence[ClaimedMessage]:
        """Claim messages that are due. No other claim returns them for CLAIM_SECONDS."""
        parameters = {"claim_seconds": CLAIM_SECONDS, "horizon_seconds": _HORIZON_SECONDS}
        rows = await self._take(statements.CLAIM, limit, parameters)
        return [ClaimedMessage(**row) for row in rows]

    async def begin_sending(self, message: ClaimedMessage) -> bool:
        """Change a claimed message to SENDING. Return False if the claim is lost and the message must not be sent."""
        parameters = {**_claim_of(message), "sending_seconds": SENDING_SECONDS}
        return bool(await self._write(statements.BEGIN_SENDING, **parameters))

    async def finish(self, message: ClaimedMessage, state: MessageState, reason: str = "", closed: str = "") -> None:
        """Change a claimed message to SENT, REFUSED or IN_DOUBT. See `MessageRecord` for `closed`."""
        digests = current_digests(message.message_id, message.recipient, message.content, message.digests or b"")
        values = {"state": state.value, "reason": reason, "closed": closed, "digests": digests}
        await self._write(statements.FINISH, **_claim_of(message), **values)

    async def postpone(self, message: ClaimedMessage, *, delay_seconds: float, reason: str, deferred: bool) -> None:
        """Requeue a claimed message to be sent after a delay. Set `deferred` if the relay deferred the message."""
        values = {"delay_seconds": delay_seconds, "reason": reason, "deferrals": int(deferred)}
        await self._write(statements.POSTPONE, **_claim_of(message), **values)

    async def give_up_overdue(self) -> Sequence[str]:
        """Mark a batch of messages that have been SENDING for too long as IN_DOUBT, and return their ids."""
        rows = await self._take(statements.GIVE_UP_OVERDUE, _MAX_CHANGES, {"horizon_seconds": _HORIZON_SECONDS})
        return [row["letter_id"] for row in rows]

    async def requeue(self, message_id: str, *, forget_sent: bool = False) -> bool:
        """Requeue a message that is REFUSED or IN_DOUBT. Return False if the message is in another state or missing.

        With `forget_sent`, delete a message that is SENT, so that it can be accepted again, and return True.
        """
        requeued = await self._write(statements.REQUEUE, letter_id=message_id)
        if forget_sent and not requeued:
            requeued = await self._write(statements.FORGET_SENT, letter_id=message_id)
        self.wake.set()
        return bool(requeued)

    async def close(self, message_id: str, closed: str) -> bool:
        """Close a message that is REFUSED or IN_DOUBT. Return False if the message is in another state or missing."""
        return bool(await self._write(statements.CLOSE, letter_id=message_id, closed=closed))

    async def list_unsent(self, state: MessageState, limit: int) -> Sequence[MessageRecord]:
        """Return up to `limit` messages in a state other than SENT, without content, least recently changed first."""
        rows = await self._database.report(statements.LIST, {"state": state.value, "limit": limit})
        return [record for row in rows if (record := _readable(row))]

    async def read(self, message_id: str) -> MessageRecord | None:
        """Return a message with its content, or None if there is no such message."""
        rows = await self._database.read(statements.READ, {"items": listed([{"id": message_id}])})
        return _record(rows[0]) if rows else None

    async def find(self, message_ids: Iterable[str]) -> Mapping[str, MessageRecord | None]:
        """Return the messages that exist, by id. A message that can't be decoded maps to None."""
        rows = await self._database.report(statements.READ, {"items": listed({"id": id_} for id_ in message_ids)})
        return {row["message_id"]: _readable(row) for row in rows}

    async def statistics(self) -> Mapping[MessageState, tuple[int, float]]:
        """Return, by state, the number of unsent, unclosed messages and the seconds since the oldest change."""
        rows = await self._database.report(statements.STATISTICS, {})
        return {MessageState(row["state"]): (row["letters"], max(0.0, float(row["oldest_seconds"]))) for row in rows}

    async def check(self) -> None:
        await self.read("")

    async def _take(self, text: str, limit: int, parameters: Parameters) -> Sequence[Row]:
        async def take(limit: int, passed: int) -> Sequence[Row]:
            return await self._write(text, **parameters, limit=limit, passed=passed)

        return await self._heads[text].take(take, limit)

    async def _write(self, text: str, **parameters: Any) -> Sequence[Row]:
        (rows,) = await self._database.write((text, parameters))
        return rows


def _log_unsent(deleted: Sequence[Row]) -> None:
    if unsent := Counter(row["state"] for row in deleted if row["state"] != MessageState.SENT):
        log.error("old messages deleted unsent", **unsent)


def _claim_of(message: ClaimedMessage) -> dict[str, Any]:
    return {"letter_id": message.message_id, "attempt": message.attempt}


def _readable(row: Row) -> MessageRecord | None:
    try:
        return _record(row)
    except (TypeError, ValueError):
        log.exception("message cannot be decoded", message_id=row["message_id"])
        return None


def _record(row: Row) -> MessageRecord:
    """Decode a row, or raise TypeError or ValueError. Rows that `LIST` returns have neither content nor digests."""
    content, digests = row["content"], row["digests"] or b""
    are_texts = all(isinstance(row[column], str) for column in ("recipient", "reason", "closed"))
    are_times = is_time(row["accepted_at"]) and is_time(row["changed_at"])
    if not (are_texts and are_times and isinstance(digests, bytes)) or len(digests) % 4:
        raise TypeError("a column has a value of another type or length")  # SQLite's columns take any
    if content is not None:  # sent messages have no content
        digests = current_digests(row["message_id"], row["recipient"], content, digests)
    decoded = {"state": MessageState(row["state"]), "content": content or b"", "digests": digests}
    return MessageRecord(**{**row, **decoded})
