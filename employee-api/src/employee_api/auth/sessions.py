"""Login sessions in the database: opaque tokens, stored as hashes, that expire when idle and at a maximum age."""

import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, delete, insert, or_, select, update
from sqlmodel import col

from employee_api.access import Actor, Caller
from employee_api.activities import Subject, change, record
from employee_api.auth.schemas import SessionOutput
from employee_api.database import Repository, transaction
from employee_api.errors import SessionNotFound
from employee_api.models import Session, User
from employee_api.tokens import hash_token, new_token
from employee_api.users.locks import lock_user

# `last_seen_at` is updated once in this fraction of the idle time: a write with every request would be too costly.
_UPDATES_PER_IDLE_TIME = 20
_COLUMNS = [getattr(Session, name) for name in Session.model_fields]


@dataclass
class SessionRepository(Repository):
    """Sessions end `idle` after the last request, and `absolute` after the login at the latest.

    They end with their user, whose role is read with every request.
    """

    idle: timedelta
    absolute: timedelta

    @property
    def lifetime_seconds(self) -> int:
        """The maximum age of a session."""
        return int(self.absolute.total_seconds())

    async def create(self, user_id: uuid.UUID, caller: Caller) -> str:
        """Create a session and return its token, which can't be recovered later. Deletes all expired sessions."""
        now = self.clock()
        token = new_token()
        expired = or_(col(Session.expires_at) <= now, col(Session.last_seen_at) <= now - self.idle)
        row = {
            "token_hash": hash_token(token),
            "user_id": user_id,
            "created_at": now,
            "last_seen_at": now,
            "expires_at": now + self.absolute,
            "address": caller.address,
            "user_agent": caller.user_agent,
        }
        async with transaction(self.engine) as connection:
            await connection.execute(delete(Session).where(expired))
            await connection.execute(insert(Session).values(row))
        return token

    async def find_actor(self, token: str) -> Actor | None:
        """Return the active user of an unexpired session, with their current role, and extend its idle time."""
        now = self.clock()
        query = (
            select(col(User.id), col(User.role), col(User.approved), col(Session.last_seen_at))
            .join(Session, col(Session.user_id) == col(User.id))
            .where(col(Session.token_hash) == hash_token(token), col(User.deactivated_at).is_(None))
            .where(*self._active(now))
        )
        row = await self._find(query)
        if row is None:
            return None
        user_id, role, approved, last_seen_at = row.values()
        if now - last_seen_at > self.idle / _UPDATES_PER_IDLE_TIME:
            seen = update(Session).where(col(Session.token_hash) == hash_token(token)).values(last_seen_at=now)
            async with self.engine.begin() as connection:
                await connection.execute(seen)
        return Actor(user_id, role, approved)

    async def list_active(self, user_id: uuid.UUID, current_token: str | None) -> list[SessionOutput]:
        """Return the sessions of a user that have not ended, newest first."""
        query = select(*_COLUMNS).where(col(Session.user_id) == user_id, *self._active(self.clock()))
        current_hash = current_token and hash_token(current_token)
        rows = await self._find_all(query.order_by(col(Session.created_at).desc()))
        return [
            SessionOutput.model_validate(
                row | {"id": _session_id(row["token_hash"]), "current": row["token_hash"] == current_hash}
            )
            for row in rows
        ]

    async def end(self, session_id: uuid.UUID, owner: Actor) -> None:
        """End a session of its owner. Raises SessionNotFound."""
        async with transaction(self.engine) as connection:
            user = await lock_user(connection, owner.id, owner)
            hashes = await connection.execute(select(col(Session.token_hash)).where(col(Session.user_id) == owner.id))
            token_hash = next((found for found in hashes.scalars() if _session_id(found) == session_id), None)
            if token_hash is None:
                raise SessionNotFound
            await connection.execute(delete(Session).where(col(Session.token_hash) == token_hash))
            ended = Subject("user", user.id, user.name, {"session_id": change(session_id, None)})
            await record(connection, owner, "ended_session", [ended], self.clock())

    async def end_all(self, user_id: uuid.UUID, actor: Actor | None, except_token: str | None = None) -> int:
        """End all sessions of a user, or all but one, and return how many. Raises UserNotFound."""
        conditions = [col(Session.user_id) == user_id]
        if except_token is not None:
            conditions.append(col(Session.token_hash) != hash_token(except_token))
        async with transaction(self.engine) as connection:
            user = await lock_user(connection, user_id, actor)
            number = (await connection.execute(delete(Session).where(*conditions))).rowcount
            if number:
                ended = Subject("user", user_id, user.name, {"sessions": change(number, 0)})
                await record(connection, actor, "ended_sessions", [ended], self.clock())
        return number

    def _active(self, now: datetime) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
        return col(Session.expires_at) > now, col(Session.last_seen_at) > now - self.idle

    async def delete(self, token: str) -> None:
        """Delete the session with this token, if there is one."""
        async with self.engine.begin() as connection:
            await connection.execute(delete(Session).where(col(Session.token_hash) == hash_token(token)))


def _session_id(token_hash: bytes) -> uuid.UUID:
    # It identifies the session to its owner, and reveals nothing of the token.
    return uuid.UUID(bytes=token_hash[:16])
