"""Locks users for a change, and refuses changes after which no user would have a management role."""

import uuid

from sqlalchemy import ColumnElement, RowMapping, and_, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlmodel import col

from employee_api.access import MANAGEMENT_ROLES, Actor
from employee_api.database import Repository
from employee_api.errors import AuthenticationRequired, LastManagementUser, UserNotFound
from employee_api.fields import parse_id
from employee_api.http.operations import Call, InputT
from employee_api.models import User
from employee_api.users.schemas import AccountOutput

_CAN_MANAGE: ColumnElement[bool] = and_(
    col(User.role).in_(MANAGEMENT_ROLES), col(User.approved), col(User.deactivated_at).is_(None)
)


async def user_of(call: Call[InputT], rows: Repository) -> uuid.UUID:
    """Return the id of the user in the path, or else of the session's user. Raises UserNotFound."""
    if "id" not in call.ids:
        return call.user.id
    if await rows.find_row(select(col(User.id)).where(col(User.id) == call.id)) is None:
        raise UserNotFound
    return call.id


async def lock_user(
    connection: AsyncConnection, user_id: uuid.UUID, actor: Actor | None, *, ends_management: str | None = None
) -> AccountOutput:
    """Lock a user and the actor until the transaction ends, and return the user.

    `ends_management` names a change after which the user can't manage others, such as "deleted". It locks all
    management users, so that two such changes can't each rely on the other's user.

    Raises UserNotFound, LastManagementUser, AuthenticationRequired if the actor was deleted or deactivated meanwhile.
    """
    conditions: list[ColumnElement[bool]] = [col(User.id).in_([user_id, *([actor.id] if actor else [])])]
    if ends_management is not None:
        conditions.append(_CAN_MANAGE)
    users = await lock_users(connection, or_(*conditions))
    if actor is not None and (actor.id not in users or users[actor.id]["deactivated_at"] is not None):
        raise AuthenticationRequired
    if user_id not in users:
        raise UserNotFound
    if ends_management is not None and {row["id"] for row in users.values() if can_manage(row)} == {user_id}:
        raise LastManagementUser(ends_management)
    return AccountOutput.model_validate(users[user_id])


async def lock_actor(connection: AsyncConnection, actor: Actor | None) -> None:
    """Lock the actor, if there is one. Raises AuthenticationRequired if they were deleted or deactivated meanwhile."""
    if actor is not None:
        await lock_user(connection, actor.id, actor)


def can_manage(row: RowMapping) -> bool:
    return row["role"] in MANAGEMENT_ROLES and row["approved"] and row["deactivated_at"] is None


async def lock_users(connection: AsyncConnection, condition: ColumnElement[bool]) -> dict[uuid.UUID, RowMapping]:
    """Lock the users that match until the transaction ends, and return their accounts by id."""
    query = select(*AccountOutput.columns(User)).where(condition).order_by(col(User.id)).with_for_update()
    return {row["id"]: row for row in (await connection.execute(query)).mappings()}


async def find_role(rows: Repository, user_id: str) -> str | None:
    """Return the role of a user; None for an unknown or malformed id."""
    row = await rows.find_row(select(col(User.role)).where(col(User.id) == parse_id(user_id)))
    return None if row is None else row["role"]


async def is_managed(rows: Repository) -> bool:
    """Return whether any user can manage others."""
    return await rows.find_row(select(col(User.id)).where(_CAN_MANAGE).limit(1)) is not None
