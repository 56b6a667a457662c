"""Counts failed logins and registration attempts in the database, so that all replicas share the counts."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import case, delete, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlmodel import col

from employee_api.database import Repository, transaction
from employee_api.models import FailureCount


@dataclass
class FailureCounts(Repository):
    """Counts failures by key. A count restarts at zero once `window` has passed since its first failure."""

    window: timedelta

    async def read(self, keys: Iterable[bytes]) -> Mapping[bytes, FailureCount]:
        """Return the counts of these keys, omitting keys that have no failures in the current window."""
        current = col(FailureCount.begun_at) > self.clock() - self.window
        query = select(FailureCount).where(col(FailureCount.key_hash).in_(list(keys)), current)
        return {row["key_hash"]: FailureCount(**row) for row in await self.find_rows(query)}

    async def add(self, keys: Iterable[bytes]) -> Mapping[bytes, FailureCount]:
        """Count a failure for each key, delete counts whose window has ended, and return the new counts."""
        now = self.clock()
        begun_at, failures = col(FailureCount.begun_at), col(FailureCount.failures)
        ended = begun_at <= now - self.window
        insert = postgresql.insert if self.engine.dialect.name == "postgresql" else sqlite.insert
        # Sort the keys, so that transactions that lock the same rows can't deadlock.
        rows = [{"key_hash": key, "failures": 1, "begun_at": now, "last_at": now} for key in sorted(keys)]
        changed = {
            "failures": case((ended, 1), else_=failures + 1),
            "begun_at": case((ended, now), else_=begun_at),
            "last_at": now,
        }
        add = insert(FailureCount).values(rows).on_conflict_do_update(index_elements=["key_hash"], set_=changed)
        # Skip rows that another transaction has locked, instead of waiting for them.
        deletable = select(col(FailureCount.key_hash)).where(ended).with_for_update(skip_locked=True)
        async with transaction(self.engine) as connection:
            counted = (await connection.execute(add.returning(FailureCount))).mappings()
            counts = {row["key_hash"]: FailureCount(**row) for row in counted}
            await connection.execute(delete(FailureCount).where(col(FailureCount.key_hash).in_(deletable)))
        return counts

    async def reset(self, keys: Iterable[bytes]) -> None:
        await self.execute(delete(FailureCount).where(col(FailureCount.key_hash).in_(list(keys))))


def count_key(kind: str, value: str) -> bytes:
    """Hash a value into a fixed-length key, because the e-mail address in a login request may be very long."""
    return hashlib.sha256(f"{kind} {value}".encode()).digest()
