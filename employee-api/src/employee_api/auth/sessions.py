import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, delete, func, insert, or_, select, update
from sqlmodel import col

from employee_api.access import Access, Actor, hash_token, new_token, session_token
from employee_api.activities import Subject, record
from employee_api.auth.schemas import EndedSessions, SessionOutput
from employee_api.database import Repository, transaction
from employee_api.errors import SessionNotFound, UserNotFound
from employee_api.http.operations import Call, InputT, operation
from employee_api.models import Session, User
from employee_api.schemas import Deleted
from employee_api.users.repository import lock_user

# Update `last_seen_at` at most this many times per idle timeout, because writing on every request would cost too much.
_UPDATES_PER_IDLE_TIME = 20
# A session's id is the first half of the token's hash, which doesn't reveal the token.
_ID_BYTES = 16


@dataclass
class SessionHandlers(Repository):
    """Lets users list and end their own sessions, and lets management users do so for lower-ranking users.

    A session ends when it has been idle for `idle`, when it reaches the age `absolute`, or when its user is deleted or
    deactivated. The user's role is read on every request.
    """

    idle: timedelta
    absolute: timedelta

    async def create(self, user_id: uuid.UUID, origin: dict[str, str]) -> str:
        """Create a session and return its token. Only the token's hash is stored. Also delete expired sessions."""
        now = self.clock()
        token = new_token()
        expired = or_(col(Session.expires_at) <= now, col(Session.last_seen_at) <= now - self.idle)
        row = {
            "token_hash": hash_token(token),
            "user_id": user_id,
            "created_at": now,
            "last_seen_at": now,
            "expires_at": now + self.absolute,
        }
        async with transaction(self.engine) as connection:
            await connection.execute(delete(Session).where(expired))
            await connection.execute(insert(Session).values(row | origin))
        return token

    async def find_actor(self, token: str) -> Actor | None:
        """Return the session's user and restart the idle timeout. Return None if the token has no active session."""
        active = self._active(self.clock())
        row = await find_active(self, Session, token, ["last_seen_at"], self.idle / _UPDATES_PER_IDLE_TIME, *active)
        return Actor(row["user_id"], row["role"], row["approved"]) if row else None

    @operation("GET", "/api/auth/sessions", "List your sessions", Access.SELF)
    @operation(
        "GET", "/api/auth/users/{id}/sessions", "List an employee's sessions", Access.SUBORDINATE,
        named="list_sessions_of_user",
    )  # fmt: skip
    async def list_sessions(self, call: Call[None]) -> list[SessionOutput]:
        user_id, current = await user_of(call, self), hash_token(session_token(call.request))
        query = select(Session).where(col(Session.user_id) == user_id, *self._active(self.clock()))
        rows = await self.find_rows(query.order_by(col(Session.created_at).desc()))
        for row in rows:
            row.update(id=uuid.UUID(bytes=row["token_hash"][:_ID_BYTES]), current=row["token_hash"] == current)
        return [SessionOutput.model_validate(row) for row in rows]

    @operation("DELETE", "/api/auth/sessions/{id}", "End one of your sessions", Access.SELF)
    async def end_session(self, call: Call[None]) -> Deleted:
        same_id = func.substr(col(Session.token_hash), 1, _ID_BYTES) == call.id.bytes
        ending = delete(Session).where(col(Session.user_id) == call.user.id, same_id)
        async with transaction(self.engine) as connection:
            user = await lock_user(connection, call.user.id, call.user)
            if (await connection.execute(ending)).rowcount == 0:
                raise SessionNotFound
            ended = Subject("user", user.id, user.name, before={"session_id": call.id})
            await record(connection, call.user, "ended_session", self.clock(), ended)
        return Deleted(id=call.id)

    @operation("DELETE", "/api/auth/sessions", "End all your sessions but this one", Access.SELF)
    async def end_other_sessions(self, call: Call[None]) -> EndedSessions:
        current = hash_token(session_token(call.request))
        return await self._end(call.user.id, call.user, col(Session.token_hash) != current)

    @operation("DELETE", "/api/auth/users/{id}/sessions", "End all sessions of an employee", Access.SUBORDINATE)
    async def end_sessions_of_user(self, call: Call[None]) -> EndedSessions:
        return await self._end(call.id, call.actor)

    async def delete(self, token: str) -> None:
        await self.execute(delete(Session).where(col(Session.token_hash) == hash_token(token)))

    async def _end(self, user_id: uuid.UUID, actor: Actor | None, *conditions: ColumnElement[bool]) -> EndedSessions:
        async with transaction(self.engine) as connection:
            user = await lock_user(connection, user_id, actor)
            ending = delete(Session).where(col(Session.user_id) == user_id, *conditions)
            number = (await connection.execute(ending)).rowcount
            if number:
                ended = Subject("user", user_id, user.name, {"sessions": number}, {"sessions": 0})
                await record(connection, actor, "ended_sessions", self.clock(), ended)
        return EndedSessions(ended=number)

    def _active(self, now: datetime) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
        return col(Session.expires_at) > now, col(Session.last_seen_at) > now - self.idle


async def find_active(
    rows: Repository, table: Any, token: str, columns: Sequence[str], interval: timedelta, *active: ColumnElement[bool]
) -> dict[str, Any] | None:
    """Return the user's id, role and approval, and `columns` of a token's row; None if it or its user isn't active.

    The first column is the time of the last use. If it is unset or older than `interval`, set it to the current time.
    """
    now, used, is_token = rows.clock(), columns[0], col(table.token_hash) == hash_token(token)
    query = select(*(getattr(table, name) for name in ("user_id", *columns)), col(User.role), col(User.approved))
    query = query.join(User, col(User.id) == table.user_id).where(is_token, col(User.deactivated_at).is_(None), *active)
    row = await rows.find_row(query)
    if row is not None and (row[used] is None or now - row[used] > interval):
        await rows.execute(update(table).where(is_token).values({used: now}))
    return row


async def user_of(call: Call[InputT], rows: Repository) -> uuid.UUID:
    """Return the user id in the path, or the caller's id if the path has none. Raise UserNotFound for an unknown id."""
    if "id" not in call.ids:
        return call.user.id
    if await rows.find_row(select(col(User.id)).where(col(User.id) == call.id)) is None:
        raise UserNotFound
    return call.id
