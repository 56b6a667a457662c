"""Single-use links invite people to register, or let users set a password. Only hashes of their tokens are stored."""

import uuid
from collections.abc import Collection
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, Row, and_, delete, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlmodel import col

from employee_api.access import Actor, hash_token, new_token, outranks
from employee_api.database import Repository
from employee_api.models import ApiToken, Device, Session, SingleUseLink, User
from employee_api.users.repository import can_manage, lock_users


class LinkPurpose(StrEnum):
    INVITATION = "invitation"
    PASSWORD_RESET = "password_reset"  # noqa: S105 - not a password


async def create_link(
    connection: AsyncConnection,
    purpose: LinkPurpose,
    lifetime: timedelta,
    creator: Actor | None,
    now: datetime,
    **allows: Any,
) -> tuple[SingleUseLink, str]:
    """Create a link, and return it with its token. Only the token's hash is stored. Also delete expired links.

    `allows` contains `role` and `dept` for an invitation, or `user_id` for a password reset. The caller must already
    have locked the creator and, for a password reset, that user.
    """
    token = new_token()
    link = SingleUseLink(
        id=uuid.uuid4(),
        token_hash=hash_token(token),
        purpose=purpose,
        creator_id=creator.id if creator else None,
        created_at=now,
        expires_at=now + lifetime,
        **allows,
    )
    await connection.execute(delete(SingleUseLink).where(col(SingleUseLink.expires_at) <= now))
    await connection.execute(insert(SingleUseLink).values(link.model_dump()))
    return link, token


async def is_usable(rows: Repository, purpose: LinkPurpose, token: str) -> bool:
    query = select(col(SingleUseLink.id)).where(_usable(purpose, token, rows.clock()))
    return await rows.find_row(query) is not None


async def use_link(
    connection: AsyncConnection, purpose: LinkPurpose, token: str, now: datetime, *, require_manager: bool
) -> Row[Any] | None:
    """Mark a link as used and return its row, or return None if the link isn't usable. Lock its user and its creator.

    With `require_manager`, the creator must still be able to manage others, and must outrank the user or the invited
    role. This rules out links that were created before authorization was enforced, and links whose creators have left.
    """
    usable = _usable(purpose, token, now)
    link = (await connection.execute(select(SingleUseLink).where(usable))).first()
    if link is None:
        return None
    users = await lock_users(connection, col(User.id).in_([link.user_id, link.creator_id]))
    creator, role = users.get(link.creator_id), users[link.user_id]["role"] if link.user_id else link.role
    if require_manager and not (creator and can_manage(creator) and outranks(creator["role"], role)):
        return None
    # If two requests use the link at once, the second request waits here, and then finds the link used.
    used = await connection.execute(update(SingleUseLink).where(usable).values(used_at=now))
    return link if used.rowcount == 1 else None


async def end_access(connection: AsyncConnection, user_id: uuid.UUID, kept: Collection[bytes] = ()) -> None:
    """Delete the user's sessions, API tokens and devices, and the links that are for the user or were created by them.

    This ends all access that an intruder may have gained with the user's password or session. Sessions and devices
    whose token hashes are in `kept` remain.
    """
    table: Any
    for table in (Session, ApiToken, Device):
        of_user = (col(table.user_id) == user_id, col(table.token_hash).not_in(kept))
        await connection.execute(delete(table).where(*of_user))
    made = and_(col(SingleUseLink.creator_id) == user_id, col(SingleUseLink.used_at).is_(None))
    await connection.execute(delete(SingleUseLink).where(or_(col(SingleUseLink.user_id) == user_id, made)))


def _usable(purpose: LinkPurpose, token: str, now: datetime) -> ColumnElement[bool]:
    return and_(
        col(SingleUseLink.token_hash) == hash_token(token),
        col(SingleUseLink.purpose) == purpose,
        col(SingleUseLink.used_at).is_(None),
        col(SingleUseLink.expires_at) > now,
    )
