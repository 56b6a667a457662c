"""Invitations to register, in the database."""

import uuid
from datetime import timedelta

from sqlalchemy import delete, select
from sqlmodel import col

from employee_api.access import Actor
from employee_api.activities.repository import Subject, change, record
from employee_api.database import Repository, transaction
from employee_api.errors import InvitationNotFound
from employee_api.models import SingleUseLink
from employee_api.users.links import LinkPurpose, NewLink, create_link
from employee_api.users.locks import lock_user
from employee_api.users.schemas import CreatedInvitation, InvitationInput, InvitationOutput

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
