"""Changes of passwords in the database: by their users, and with single-use links from management users."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, delete, select, update
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlmodel import col

from employee_api.access import Actor
from employee_api.activities import Subject, record
from employee_api.database import Repository, transaction
from employee_api.errors import InvalidPasswordReset, WrongPassword
from employee_api.models import ApiToken, Device, Session, SingleUseLink, User
from employee_api.tokens import hash_token
from employee_api.users.links import LinkPurpose, NewLink, create_link, is_usable, use_link
from employee_api.users.locks import lock_user
from employee_api.users.repository import Account
from employee_api.users.schemas import CreatedPasswordReset

_RESET_LIFETIME = timedelta(hours=24)


@dataclass
class PasswordChangeRepository(Repository):
    """Every change voids the links that exist for its user.

    With `enforced` authorization links are valid only while their creators have a management role.
    """

    enforced: bool

    async def change(self, account: Account, password_hash: str, actor: Actor, session_token: str) -> None:
        """Replace a user's own password and end their other sessions. Raises WrongPassword if it has changed."""
        async with transaction(self.engine) as connection:
            user = await lock_user(connection, account.user.id, actor)
            unchanged = (col(User.id) == user.id, col(User.password_hash) == account.password_hash)
            changed = await connection.execute(update(User).where(*unchanged).values(password_hash=password_hash))
            if changed.rowcount == 0:
                raise WrongPassword
            await _void(connection, user.id, [col(Session.token_hash) != hash_token(session_token)])
            subject = Subject("user", user.id, user.name, {})
            await record(connection, actor, "changed_password", [subject], self.clock())

    async def create_reset(self, user_id: uuid.UUID, actor: Actor | None) -> CreatedPasswordReset:
        """Create a link with which the user can set a password, instead of any older one. Raises UserNotFound."""
        now = self.clock()
        async with transaction(self.engine) as connection:
            user = await lock_user(connection, user_id, actor)
            await _delete_links(connection, user_id)
            new = NewLink(LinkPurpose.PASSWORD_RESET, _RESET_LIFETIME, user_id=user_id)
            link = await create_link(connection, new, actor, now)
            await record(connection, actor, "allowed_password_reset", [Subject("user", user.id, user.name, {})], now)
        return CreatedPasswordReset(user_id=user_id, token=link.token, expires_at=link.expires_at)

    async def check_reset(self, token: str) -> None:
        """Refuse a reset before its password is hashed. Raises InvalidPasswordReset."""
        async with self._reads.connect() as connection:
            if not await is_usable(connection, LinkPurpose.PASSWORD_RESET, token, self.clock()):
                raise InvalidPasswordReset

    async def reset(self, token: str, password_hash: str) -> None:
        """Set the password of the link's user, and end all their sessions and API tokens.

        Raises InvalidPasswordReset.
        """
        now = self.clock()
        async with transaction(self.engine) as connection:
            user = await self._use(connection, token, now)
            await connection.execute(update(User).where(col(User.id) == user.id).values(password_hash=password_hash))
            await _void(connection, user.id)
            # Someone else may have known the password: their devices and API tokens must not give access any more.
            await connection.execute(delete(Device).where(col(Device.user_id) == user.id))
            await connection.execute(delete(ApiToken).where(col(ApiToken.user_id) == user.id))
            await record(connection, None, "reset_password", [user], now)

    async def _use(self, connection: AsyncConnection, token: str, now: datetime) -> Subject:
        """Use the link and return its user, who is locked."""
        purpose = LinkPurpose.PASSWORD_RESET
        link = await use_link(connection, purpose, token, now, require_manager=self.enforced)
        if link is None or link.user_id is None:
            raise InvalidPasswordReset
        name = await connection.execute(select(col(User.name)).where(col(User.id) == link.user_id))
        return Subject("user", link.user_id, name.scalar_one(), {})


async def _void(connection: AsyncConnection, user_id: uuid.UUID, sessions: Sequence[ColumnElement[bool]] = ()) -> None:
    """End the user's sessions that meet the conditions, and delete the links for their password."""
    await connection.execute(delete(Session).where(col(Session.user_id) == user_id, *sessions))
    await _delete_links(connection, user_id)


async def _delete_links(connection: AsyncConnection, user_id: uuid.UUID) -> None:
    of_user = (col(SingleUseLink.user_id) == user_id, col(SingleUseLink.purpose) == LinkPurpose.PASSWORD_RESET)
    await connection.execute(delete(SingleUseLink).where(*of_user))
