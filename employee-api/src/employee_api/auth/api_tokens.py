"""API tokens let programs act for a user within certain scopes. Only a hash of each token is stored."""

import uuid
from datetime import datetime, timedelta

from sqlalchemy import delete, func, insert, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlmodel import col
from starlette.requests import Request

from chassis.errors import FieldViolation
from employee_api import errors
from employee_api.access import API_TOKEN_PREFIX, Access, Actor, bearer_token, hash_token, new_token, session_token
from employee_api.activities import Subject, record
from employee_api.auth.schemas import NewTokenOutput, TokenInput, TokenOutput
from employee_api.auth.sessions import SessionHandlers, find_active, user_of
from employee_api.database import Repository, transaction
from employee_api.http.operations import Call, operation
from employee_api.models import ApiToken
from employee_api.schemas import Deleted
from employee_api.users.repository import lock_user

_MAX_TOKENS = 50
MAX_TOKEN_AGE = timedelta(days=90)
# Update `last_used_at` at most this often, because writing on every request would cost too much.
_USE_INTERVAL = timedelta(minutes=1)


class ApiTokenHandlers(Repository):
    """Lets users manage their own API tokens, and lets management users list and revoke tokens of lower-ranking users.

    A token never grants more rights than its user's current role. Changing the password revokes the user's tokens.
    """

    async def create(self, call: Call[TokenInput]) -> NewTokenOutput:
        """Create a token, and delete the user's expired tokens. The token's secret appears only in this response."""
        now, new, owner = self.clock(), call.input, call.user
        expires_at = new.expires_at or now + MAX_TOKEN_AGE
        if not now < expires_at <= now + MAX_TOKEN_AGE:
            rule = f"must be in the next {MAX_TOKEN_AGE.days} days"
            raise errors.BadRequest(f"expires_at {rule}", [FieldViolation("expires_at", rule)])
        token = NewTokenOutput(
            id=uuid.uuid4(),
            name=new.name,
            scopes=sorted(set(new.scopes)),
            created_at=now,
            last_used_at=None,
            expires_at=expires_at,
            token=API_TOKEN_PREFIX + new_token(),
        )
        scopes = " ".join(token.scopes)
        row = {"token_hash": hash_token(token.token), "user_id": owner.id, "scopes": scopes}
        async with transaction(self.engine) as connection:
            user = await lock_user(connection, owner.id, owner)
            await _require_room(connection, owner.id, now)
            await connection.execute(insert(ApiToken).values(token.model_dump(exclude={"token", "scopes"}) | row))
            values = {"token_id": token.id, "name": token.name, "scopes": scopes}
            await record(connection, owner, "created_token", now, Subject("user", user.id, user.name, after=values))
        call.response_headers["cache-control"] = "no-store"
        return token

    @operation("GET", "/api/auth/tokens", "List your API tokens", Access.SELF)
    @operation(
        "GET", "/api/auth/users/{id}/tokens", "List an employee's API tokens", Access.SUBORDINATE,
        named="list_tokens_of_user",
    )  # fmt: skip
    async def list_tokens(self, call: Call[None]) -> list[TokenOutput]:
        query = select(*TokenOutput.columns(ApiToken)).where(col(ApiToken.user_id) == await user_of(call, self))
        rows = await self.find_rows(query.order_by(col(ApiToken.created_at).desc(), col(ApiToken.id)))
        return [TokenOutput.model_validate(row | {"scopes": row["scopes"].split()}) for row in rows]

    @operation("DELETE", "/api/auth/tokens/{id}", "Revoke one of your API tokens", Access.SELF)
    @operation(
        "DELETE", "/api/auth/users/{id}/tokens/{token_id}", "Revoke an employee's API token", Access.SUBORDINATE,
        named="revoke_token_of_user",
    )  # fmt: skip
    async def revoke_token(self, call: Call[None]) -> Deleted:
        is_own = "token_id" not in call.ids
        user_id, token_id = (call.user.id, call.id) if is_own else (call.id, call.ids["token_id"])
        async with transaction(self.engine) as connection:
            user = await lock_user(connection, user_id, call.actor)
            deletion = delete(ApiToken).where(col(ApiToken.id) == token_id, col(ApiToken.user_id) == user_id)
            name = (await connection.execute(deletion.returning(col(ApiToken.name)))).scalar()
            if name is None:
                raise errors.TokenNotFound
            revoked = Subject("user", user_id, user.name, before={"token_id": token_id, "name": name})
            await record(connection, call.actor, "revoked_token", self.clock(), revoked)
        return Deleted(id=token_id)

    async def find_actor(self, token: str) -> Actor | None:
        """Return the token's user and update `last_used_at`. Return None for an invalid token or a deactivated user."""
        now = self.clock()
        unexpired = or_(col(ApiToken.expires_at).is_(None), col(ApiToken.expires_at) > now)
        # Check the age too: replicas of an earlier release may create tokens that live longer than MAX_TOKEN_AGE.
        young = col(ApiToken.created_at) > now - MAX_TOKEN_AGE
        columns = ["last_used_at", "scopes"]
        row = await find_active(self, ApiToken, token, columns, _USE_INTERVAL, unexpired, young)
        return Actor(row["user_id"], row["role"], row["approved"], frozenset(row["scopes"].split())) if row else None


async def find_actor(sessions: SessionHandlers, tokens: ApiTokenHandlers, request: Request) -> Actor | None:
    """Return the user identified by the request's session or API token, if any."""
    bearer, token = bearer_token(request), session_token(request)
    if bearer is not None and bearer.startswith(API_TOKEN_PREFIX):
        return await tokens.find_actor(bearer)
    return await sessions.find_actor(token) if token else None


async def _require_room(connection: AsyncConnection, user_id: uuid.UUID, now: datetime) -> None:
    # The caller has locked the user, so concurrent requests can't exceed the limit.
    of_user = col(ApiToken.user_id) == user_id
    await connection.execute(delete(ApiToken).where(of_user, col(ApiToken.expires_at) <= now))
    count = select(func.count()).select_from(ApiToken).where(of_user)
    if (await connection.execute(count)).scalar_one() >= _MAX_TOKENS:
        raise errors.TooManyTokens
