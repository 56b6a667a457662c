"""Single-use links in the database: invitations, and permission to set a password. Only hashes of tokens are stored."""

import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from sqlalchemy import ColumnElement, and_, delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlmodel import col

from employee_api.access import Actor
from employee_api.models import SingleUseLink
from employee_api.tokens import hash_token, new_token
from employee_api.users.locks import lock_managing


class LinkPurpose(StrEnum):
    INVITATION = "invitation"
    PASSWORD_RESET = "password_reset"  # noqa: S105 - not a password


@dataclass(frozen=True)
class NewLink:
    """What a link allows: an invitation has a role and department, a password reset the user."""

    purpose: LinkPurpose
    lifetime: timedelta
    role: str = ""
    dept: str = ""
    user_id: uuid.UUID | None = None


@dataclass(frozen=True)
class CreatedLink:
    """A link with its token, which can't be recovered later."""

    id: uuid.UUID
    token: str
    expires_at: datetime


@dataclass(frozen=True)
class UsedLink:
    """A link that has been used in this transaction."""

    id: uuid.UUID
    role: str
    dept: str
    user_id: uuid.UUID | None


async def create_link(connection: AsyncConnection, new: NewLink, creator: Actor | None, now: datetime) -> CreatedLink:
    """Store a link, and delete all expired ones. Users that it names must be locked before."""
    token, link_id, expires_at = new_token(), uuid.uuid4(), now + new.lifetime
    row = {
        "id": link_id,
        "token_hash": hash_token(token),
        "purpose": new.purpose,
        "role": new.role,
        "dept": new.dept,
        "user_id": new.user_id,
        "creator_id": creator and creator.id,
        "created_at": now,
        "expires_at": expires_at,
    }
    await connection.execute(delete(SingleUseLink).where(col(SingleUseLink.expires_at) <= now))
    await connection.execute(insert(SingleUseLink).values(row))
    return CreatedLink(link_id, token, expires_at)


async def is_usable(connection: AsyncConnection, purpose: LinkPurpose, token: str, now: datetime) -> bool:
    """Return whether a link of this purpose has the token and is neither used nor expired."""
    found = await connection.execute(select(col(SingleUseLink.id)).where(_usable(purpose, token, now)))
    return found.first() is not None


async def use_link(
    connection: AsyncConnection, purpose: LinkPurpose, token: str, now: datetime, *, require_manager: bool
) -> UsedLink | None:
    """Mark a link as used and return it; None if it is not usable. Locks its user and its creator.

    Args:
        connection: the transaction of what the link allows.
        purpose: what the link must be for.
        token: the link's token.
        now: the time of use.
        require_manager: whether the link's creator must still have access with a management role. Then links from a
            time without authorization, or from users who have left, are not usable.
    """
    usable = _usable(purpose, token, now)
    names = ("id", "role", "dept", "user_id", "creator_id")
    query = select(*(getattr(SingleUseLink, name) for name in names)).where(usable)
    row = (await connection.execute(query)).mappings().first()
    if row is None:
        return None
    managing = await lock_managing(connection, {row["user_id"], row["creator_id"]} - {None})
    if require_manager and row["creator_id"] not in managing:
        return None
    # Of two concurrent uses the second waits here, and finds it used.
    used = await connection.execute(update(SingleUseLink).where(usable).values(used_at=now))
    return UsedLink(row["id"], row["role"], row["dept"], row["user_id"]) if used.rowcount == 1 else None


def _usable(purpose: LinkPurpose, token: str, now: datetime) -> ColumnElement[bool]:
    return and_(
        col(SingleUseLink.token_hash) == hash_token(token),
        col(SingleUseLink.purpose) == purpose,
        col(SingleUseLink.used_at).is_(None),
        col(SingleUseLink.expires_at) > now,
    )
