"""Changes to the accounts of users in the database. Every change records an activity in the same transaction."""

import uuid
from typing import Any

from sqlalchemy import delete, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlmodel import col

from employee_api.access import MANAGEMENT_ROLES, Actor
from employee_api.activities import Subject, change, record
from employee_api.database import Repository, transaction
from employee_api.errors import EmailTaken, UserNotFound
from employee_api.http.etags import require_match
from employee_api.models import ApiToken, Session, User
from employee_api.users.locks import lock_user
from employee_api.users.rules import avatar, email_key
from employee_api.users.schemas import AccountOutput, AccountPatch, OwnAccountPatch

_COLUMNS = [getattr(User, name) for name in AccountOutput.model_fields]


class AccountRepository(Repository):
    async def get(self, user_id: uuid.UUID) -> AccountOutput:
        """Return an account. Raises UserNotFound."""
        row = await self._find(select(*_COLUMNS).where(col(User.id) == user_id))
        if row is None:
            raise UserNotFound
        return AccountOutput.model_validate(row)

    async def update(
        self,
        user_id: uuid.UUID,
        patch: AccountPatch | OwnAccountPatch,
        actor: Actor | None,
        if_match: str | None,
    ) -> AccountOutput:
        """Change some fields and return the account; a role also approves it. An unchanged one records no activity.

        Raises UserNotFound, PreconditionFailed, EmailTaken, LastManagementUser.
        """
        requested = patch.model_dump(exclude_unset=True)
        if "role" in requested:
            requested["approved"] = True
        demotes = requested.get("role", "ceo") not in MANAGEMENT_ROLES
        async with transaction(self.engine) as connection:
            ends_management = "given another role" if demotes else None
            account = await lock_user(connection, user_id, actor, ends_management=ends_management)
            require_match(if_match, account)
            changed = {name: value for name, value in requested.items() if value != getattr(account, name)}
            if not changed:
                return account
            return await self._save(connection, actor, account, "updated", changed)

    async def deactivate(self, user_id: uuid.UUID, actor: Actor | None) -> AccountOutput:
        """End the user's sessions and API tokens and refuse new ones, until they are reactivated.

        Raises UserNotFound, LastManagementUser.
        """
        async with transaction(self.engine) as connection:
            account = await lock_user(connection, user_id, actor, ends_management="deactivated")
            if account.deactivated_at is not None:
                return account
            await _end_access(connection, user_id)
            return await self._save(connection, actor, account, "deactivated", {"deactivated_at": self.clock()})

    async def reactivate(self, user_id: uuid.UUID, actor: Actor | None) -> AccountOutput:
        """Let a deactivated user log in again. Raises UserNotFound."""
        async with transaction(self.engine) as connection:
            account = await lock_user(connection, user_id, actor)
            if account.deactivated_at is None:
                return account
            # A login that was under way during the deactivation may have created a session since.
            await _end_access(connection, user_id)
            return await self._save(connection, actor, account, "reactivated", {"deactivated_at": None})

    async def _save(
        self,
        connection: AsyncConnection,
        actor: Actor | None,
        account: AccountOutput,
        action: str,
        changed: dict[str, Any],
    ) -> AccountOutput:
        """Store changed fields and those that follow from them, record the activity, and return the account."""
        values = dict(changed)
        if "name" in changed:
            values["avatar"] = avatar(changed["name"])
        row = values | ({"email_key": email_key(changed["email"])} if "email" in changed else {})
        try:
            await connection.execute(update(User).where(col(User.id) == account.id).values(row))
        except IntegrityError as error:  # the unique e-mail is the only constraint that input can violate
            raise EmailTaken from error
        changes = {name: change(getattr(account, name), value) for name, value in changed.items()}
        after = account.model_copy(update=values)
        await record(connection, actor, action, [Subject("user", account.id, after.name, changes)], self.clock())
        return after


async def _end_access(connection: AsyncConnection, user_id: uuid.UUID) -> None:
    await connection.execute(delete(Session).where(col(Session.user_id) == user_id))
    await connection.execute(delete(ApiToken).where(col(ApiToken.user_id) == user_id))
