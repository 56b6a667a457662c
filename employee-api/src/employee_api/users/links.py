"""Single-use links in the database: invitations, and permission to set a password. Only hashes of tokens are stored."""

import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, Row, and_, delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlmodel import SQLModel, col

from employee_api.access import Actor
from employee_api.activities import Subject, change, record
from employee_api.database import Repository, transaction
from employee_api.errors import InvitationNotFound
from employee_api.models import SingleUseLink
from employee_api.tokens import hash_token, new_token
from employee_api.users.locks import lock_managing, lock_user
from employee_api.users.schemas import CreatedInvitation, InvitationInput, InvitationOutput

_TABLE = SQLModel.metadata.tables["single_use_links"]


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
) -> Row[Any] | None:
    """Mark a link as used and return its columns; None if it is not usable. Locks its user and its creator.

    With `require_manager` its creator must still have access with a management role: links from a time without
    authorization, or from users who have left, are not usable.
    """
    usable = _usable(purpose, token, now)
    link = (await connection.execute(select(*_TABLE.columns).where(usable))).first()
    if link is None:
        return None
    managing = await lock_managing(connection, {link.user_id, link.creator_id} - {None})
    if require_manager and link.creator_id not in managing:
        return None
    # Of two concurrent uses the second waits here, and finds it used.
    used = await connection.execute(update(SingleUseLink).where(usable).values(used_at=now))
    return link if used.rowcount == 1 else None


def _usable(purpose: LinkPurpose, token: str, now: datetime) -> ColumnElement[bool]:
    return and_(
        col(SingleUseLink.token_hash) == hash_token(token),
        col(SingleUseLink.purpose) == purpose,
        col(SingleUseLink.used_at).is_(None),
        col(SingleUseLink.expires_at) > now,
    )


_COLUMNS = [getattr(SingleUseLink, name) for name in InvitationOutput.model_fields]
_INVITATIONS = col(SingleUseLink.purpose) == LinkPurpose.INVITATION


class InvitationRepository(Repository):
    async def create(self, new: InvitationInput, actor: Actor | None) -> CreatedInvitation:
        """Create an invitation and return it with its token, which can't be recovered later."""
        now = self.clock()
        wanted = NewLink(LinkPurpose.INVITATION, timedelta(days=new.expires_in_days), new.role, new.dept)
        async with transaction(self.engine) as connection:
            if actor is not None:
                await lock_user(connection, actor.id, actor)
            link = await create_link(connection, wanted, actor, now)
            changes = {"role": change(None, new.role), "dept": change(None, new.dept)}
            await record(connection, actor, "created", [Subject("invitation", link.id, new.role, changes)], now)
        return CreatedInvitation(
            id=link.id,
            role=new.role,
            dept=new.dept,
            creator_id=actor and actor.id,
            created_at=now,
            expires_at=link.expires_at,
            used_at=None,
            token=link.token,
        )

    async def list_unexpired(self) -> list[InvitationOutput]:
        """Return all invitations that have not expired, newest first."""
        query = select(*_COLUMNS).where(_INVITATIONS, col(SingleUseLink.expires_at) > self.clock())
        newest_first = query.order_by(col(SingleUseLink.created_at).desc(), col(SingleUseLink.id).desc())
        return [InvitationOutput.model_validate(row) for row in await self._find_all(newest_first)]

    async def delete(self, invitation_id: uuid.UUID, actor: Actor | None) -> None:
        """Delete an invitation that has not been used. Raises InvitationNotFound."""
        unused = (_INVITATIONS, col(SingleUseLink.id) == invitation_id, col(SingleUseLink.used_at).is_(None))
        deletion = delete(SingleUseLink).where(*unused).returning(col(SingleUseLink.role), col(SingleUseLink.dept))
        async with transaction(self.engine) as connection:
            if actor is not None:
                await lock_user(connection, actor.id, actor)
            row = (await connection.execute(deletion)).first()
            if row is None:
                raise InvitationNotFound
            changes = {"role": change(row.role, None), "dept": change(row.dept, None)}
            subject = Subject("invitation", invitation_id, row.role, changes)
            await record(connection, actor, "deleted", [subject], self.clock())
