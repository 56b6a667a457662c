"""Logins that last: opaque tokens whose hashes the database keeps, with an idle and an absolute end."""

import hashlib
import secrets
import uuid
from datetime import timedelta

from sqlalchemy import delete, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlmodel import col

from employee_api.activities import Actor
from employee_api.models import Session, User
from employee_api.repository import Clock

_TOKEN_BYTES = 32
# Writing the time of every request would turn all reads into writes.
_SEEN_STEPS = 20


class SessionRepository:
    """Sessions in the database. A deleted user's sessions are gone with them; roles are read at each request."""

    def __init__(self, engine: AsyncEngine, clock: Clock, idle: timedelta, absolute: timedelta) -> None:
        self._engine = engine
        self._reads = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._clock = clock
        self._idle = idle
        self._absolute = absolute

    @property
    def lifetime_seconds(self) -> int:
        """How long a session can last at most."""
        return int(self._absolute.total_seconds())

    async def begin(self, user_id: uuid.UUID) -> str:
        """Begin a session and tell its token, which nobody can find out again. Sweeps away what has ended."""
        now = self._clock()
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        ended = or_(col(Session.expires_at) <= now, col(Session.last_seen_at) <= now - self._idle)
        row = {
            "token_hash": _hash(token),
            "user_id": user_id,
            "created_at": now,
            "last_seen_at": now,
            "expires_at": now + self._absolute,
        }
        async with self._engine.begin() as connection:
            await connection.execute(delete(Session).where(ended))
            await connection.execute(insert(Session).values(row))
        return token

    async def actor(self, token: str) -> Actor | None:
        """The user of a session that has not ended, with the role they have now."""
        now = self._clock()
        query = (
            select(col(User.id), col(User.role), col(Session.last_seen_at))
            .join(Session, col(Session.user_id) == col(User.id))
            .where(col(Session.token_hash) == _hash(token))
            .where(col(Session.expires_at) > now, col(Session.last_seen_at) > now - self._idle)
        )
        async with self._reads.connect() as connection:
            row = (await connection.execute(query)).first()
        if row is None:
            return None
        user_id, role, last_seen_at = row
        if now - last_seen_at > self._idle / _SEEN_STEPS:
            seen = update(Session).where(col(Session.token_hash) == _hash(token)).values(last_seen_at=now)
            async with self._engine.begin() as connection:
                await connection.execute(seen)
        return Actor(user_id, role)

    async def end(self, token: str) -> None:
        """End a session, if there is one."""
        async with self._engine.begin() as connection:
            await connection.execute(delete(Session).where(col(Session.token_hash) == _hash(token)))


def _hash(token: str) -> bytes:
    # A token is 256 random bits, so a plain hash can't be searched through as one of a password can.
    return hashlib.sha256(token.encode(errors="surrogateescape")).digest()
