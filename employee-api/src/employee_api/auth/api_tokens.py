"""API tokens in the database: secrets stored as hashes, with which programs act for a user within scopes."""

import uuid
from datetime import datetime, timedelta

from sqlalchemy import delete, func, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlmodel import col

from chassis.errors import FieldViolation
from employee_api.access import API_TOKEN_PREFIX, Actor
from employee_api.activities import Subject, change, record
from employee_api.auth.schemas import NewTokenOutput, TokenInput, TokenOutput
from employee_api.database import Repository, transaction
from employee_api.errors import BadRequest, TokenNotFound, TooManyTokens
from employee_api.models import ApiToken, User
from employee_api.tokens import hash_token, new_token
from employee_api.users.locks import lock_user

_MAX_TOKENS = 50
# A write with every request would be too costly.
_USE_INTERVAL = timedelta(minutes=1)
_COLUMNS = [getattr(ApiToken, name) for name in TokenOutput.model_fields]


class ApiTokenRepository(Repository):
    """A token never has more rights than its user: their role is read with every request."""

    async def create(self, owner: Actor, new: TokenInput) -> NewTokenOutput:
        """Create a token and return it with its secret, which can't be recovered later. Deletes expired ones.

        Raises BadRequest if it would have expired, TooManyTokens.
        """
        now = self.clock()
        if new.expires_at is not None and new.expires_at <= now:
            rule = "must be in the future"
            raise BadRequest(f"expires_at {rule}", [FieldViolation("expires_at", rule)])
        token = NewTokenOutput(
            id=uuid.uuid4(),
            name=new.name,
            scopes=sorted(set(new.scopes)),
            created_at=now,
            last_used_at=None,
            expires_at=new.expires_at,
            token=API_TOKEN_PREFIX + new_token(),
        )
        scopes = " ".join(token.scopes)
        row = {"token_hash": hash_token(token.token), "user_id": owner.id, "scopes": scopes}
        async with transaction(self.engine) as connection:
            user = await lock_user(connection, owner.id, owner)
            await _require_room(connection, owner.id, now)
            await connection.execute(insert(ApiToken).values(token.model_dump(exclude={"token", "scopes"}) | row))
            changes = {"token_id": change(None, token.id), "name": change(None, token.name)}
            created = Subject("user", user.id, user.name, changes | {"scopes": change(None, scopes)})
            await record(connection, owner, "created_token", [created], now)
        return token

    async def list_all(self, user_id: uuid.UUID) -> list[TokenOutput]:
        """Return all tokens of a user, newest first."""
        query = select(*_COLUMNS).where(col(ApiToken.user_id) == user_id)
        newest_first = query.order_by(col(ApiToken.created_at).desc(), col(ApiToken.id))
        rows = await self._find_all(newest_first)
        return [TokenOutput.model_validate(row | {"scopes": row["scopes"].split()}) for row in rows]

    async def revoke(self, user_id: uuid.UUID, token_id: uuid.UUID, actor: Actor | None) -> None:
        """Delete a token of a user. Raises UserNotFound, TokenNotFound."""
        async with transaction(self.engine) as connection:
            user = await lock_user(connection, user_id, actor)
            of_user = (col(ApiToken.id) == token_id, col(ApiToken.user_id) == user_id)
            name = (await connection.execute(select(col(ApiToken.name)).where(*of_user))).scalar()
            if name is None:
                raise TokenNotFound
            await connection.execute(delete(ApiToken).where(*of_user))
            changes = {"token_id": change(token_id, None), "name": change(name, None)}
            revoked = Subject("user", user_id, user.name, changes)
            await record(connection, actor, "revoked_token", [revoked], self.clock())

    async def find_actor(self, token: str) -> Actor | None:
        """Return the active user of an unexpired token, with their current role, and record its use."""
        now = self.clock()
        query = (
            select(col(User.id), col(User.role), col(User.approved), col(ApiToken.scopes), col(ApiToken.last_used_at))
            .join(ApiToken, col(ApiToken.user_id) == col(User.id))
            .where(col(ApiToken.token_hash) == hash_token(token), col(User.deactivated_at).is_(None))
            .where(or_(col(ApiToken.expires_at).is_(None), col(ApiToken.expires_at) > now))
        )
        row = await self._find(query)
        if row is None:
            return None
        user_id, role, approved, scopes, last_used_at = row.values()
        if last_used_at is None or now - last_used_at > _USE_INTERVAL:
            used = update(ApiToken).where(col(ApiToken.token_hash) == hash_token(token)).values(last_used_at=now)
            async with self.engine.begin() as connection:
                await connection.execute(used)
        return Actor(user_id, role, approved, frozenset(scopes.split()))


async def _require_room(connection: AsyncConnection, user_id: uuid.UUID, now: datetime) -> None:
    # The lock on the user makes concurrent requests wait, so that they can't both find room for one token.
    of_user = col(ApiToken.user_id) == user_id
    await connection.execute(delete(ApiToken).where(of_user, col(ApiToken.expires_at) <= now))
    count = select(func.count()).select_from(ApiToken).where(of_user)
    if (await connection.execute(count)).scalar_one() >= _MAX_TOKENS:
        raise TooManyTokens
