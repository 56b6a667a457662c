"""Login sessions in the database: opaque tokens, stored as hashes, that expire when idle and at a maximum age."""

import uuid
from datetime import timedelta

from sqlalchemy import delete, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlmodel import col

from employee_api.access import Actor, Caller
from employee_api.clock import Clock
from employee_api.database import transaction
from employee_api.models import Session, User
from employee_api.tokens import hash_token, new_token

# `last_seen_at` is updated once in this fraction of the idle time: a write with every request would be too costly.
_UPDATES_PER_IDLE_TIME = 20


class SessionRepository:
    """Sessions end with their user, and the user's role is read with every request.

    Args:
        engine: the database.
        clock: the current time.
        idle: the time without requests after which a session ends.
        absolute: the time after which a session ends in any case.
    """

    def __init__(self, engine: AsyncEngine, clock: Clock, idle: timedelta, absolute: timedelta) -> None:
        self._engine = engine
        self._reads = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._clock = clock
        self._idle = idle
        self._absolute = absolute

    @property
    def lifetime_seconds(self) -> int:
        """The maximum age of a session."""
        return int(self._absolute.total_seconds())

    async def create(self, user_id: uuid.UUID, caller: Caller) -> str:
        """Create a session and return its token, which can't be recovered later. Deletes all expired sessions."""
        now = self._clock()
        token = new_token()
        expired = or_(col(Session.expires_at) <= now, col(Session.last_seen_at) <= now - self._idle)
        row = {
            "token_hash": hash_token(token),
            "user_id": user_id,
            "created_at": now,
            "last_seen_at": now,
            "expires_at": now + self._absolute,
            "address": caller.address,
            "user_agent": caller.user_agent,
        }
        async with transaction(self._engine) as connection:
            await connection.execute(delete(Session).where(expired))
            await connection.execute(insert(Session).values(row))
        return token

    async def find_actor(self, token: str) -> Actor | None:
        """Return the active user of an unexpired session, with their current role, and extend its idle time."""
        now = self._clock()
        query = (
            select(col(User.id), col(User.role), col(User.approved), col(Session.last_seen_at))
            .join(Session, col(Session.user_id) == col(User.id))
            .where(col(Session.token_hash) == hash_token(token), col(User.deactivated_at).is_(None))
            .where(col(Session.expires_at) > now, col(Session.last_seen_at) > now - self._idle)
        )
        async with self._reads.connect() as connection:
            row = (await connection.execute(query)).first()
        if row is None:
            return None
        user_id, role, approved, last_seen_at = row
        if now - last_seen_at > self._idle / _UPDATES_PER_IDLE_TIME:
            seen = update(Session).where(col(Session.token_hash) == hash_token(token)).values(last_seen_at=now)
            async with self._engine.begin() as connection:
                await connection.execute(seen)
        return Actor(user_id, role, approved)

    async def delete(self, token: str) -> None:
        """Delete the session with this token, if there is one."""
        async with self._engine.begin() as connection:
            await connection.execute(delete(Session).where(col(Session.token_hash) == hash_token(token)))
