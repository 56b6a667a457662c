import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import delete, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlmodel import col

from employee_api import errors
from employee_api.access import MANAGEMENT_ROLES, Access, Actor
from employee_api.activities import Subject, record
from employee_api.database import Repository, transaction
from employee_api.fields import email_key
from employee_api.http.authorization import Authorizer
from employee_api.http.etags import require_match
from employee_api.http.inputs import ANY_QUERY
from employee_api.http.operations import Call, operation
from employee_api.models import Comment, Task, User
from employee_api.schemas import Deleted
from employee_api.users.links import end_access
from employee_api.users.registration import NewUserBody, NewUserPreparer
from employee_api.users.repository import RECORDED_FIELDS, add_user, avatar, lock_user, save_user
from employee_api.users.schemas import DEFAULT_ROLE, AccountOutput, AccountPatch, OwnAccountPatch, UserInput, UserOutput

UserT = TypeVar("UserT", bound=UserOutput)


@dataclass
class UserHandlers(Repository):
    """Handles employees' accounts.

    If authorization is enforced, only management users see others' e-mails, and at least one such user must remain.
    """

    new_users: NewUserPreparer
    authorizer: Authorizer

    @operation("GET", "/api/auth/users", "List all employees", Access.SESSION, reads=ANY_QUERY)
    async def list_users(self, call: Call[None]) -> list[UserOutput]:
        query = select(*UserOutput.columns(User)).order_by(col(User.created_at), col(User.id))
        # Don't validate stored values again: with thousands of users, that would take most of the request's time.
        users = [UserOutput.model_construct(None, **row) for row in await self.find_rows(query)]
        return [self._visible(user, call.actor) for user in users]

    @operation(
        "POST", "/api/auth/users", "Add an employee", Access.MANAGEMENT, reads=NewUserBody, creates=True,
        repeatable=True, failures=(errors.WeakPassword(), errors.EmailTaken(), errors.TooManyPasswords()),
        enforced_failures=(errors.HigherRoleRequired(),),
    )  # fmt: skip
    async def add_user(self, call: Call[UserInput]) -> UserOutput:
        self.authorizer.require_higher(call.actor, call.input.role or DEFAULT_ROLE, "add_user")
        password_hash = await call.while_connected(self.new_users.hash(call.input.password))
        async with transaction(self.engine) as connection:
            return await add_user(connection, call.input, password_hash, call.actor, self.clock())

    @operation(
        "DELETE", "/api/auth/users/{id}", "Delete an employee and remove them from all tasks", Access.SUBORDINATE,
        reads=ANY_QUERY, enforced_failures=(errors.LastManagementUser(),),
    )  # fmt: skip
    async def delete_user(self, call: Call[None]) -> Deleted:
        """Delete a user. Their tasks become unassigned; their comments and activities remain, without the user's id."""
        user_id, actor, now = call.id, call.actor, self.clock()
        async with transaction(self.engine) as connection:
            ends_management = "deleted" if self.authorizer.enforced else None
            user = await lock_user(connection, user_id, actor, ends_management=ends_management)
            # If users delete themselves, the activity can't refer to them, because it is inserted after their deletion.
            remaining_actor = None if actor and actor.id == user_id else actor
            await _leave_tasks(connection, user_id, remaining_actor, now)
            await connection.execute(delete(User).where(col(User.id) == user_id))
            recorded = user.model_dump(include=RECORDED_FIELDS)
            deleted = Subject("user", user_id, user.name, before=recorded)
            await record(connection, remaining_actor, "deleted", now, deleted)
        return Deleted(id=user_id)

    @operation("GET", "/api/auth/users/{id}", "Get an employee's account", Access.SESSION, tagged=True)
    async def get_user(self, call: Call[None]) -> AccountOutput:
        return self._visible(await self._get(call.id, errors.UserNotFound), call.actor)

    @operation("GET", "/api/auth/me", "Get your own account", Access.SELF, tagged=True)
    async def get_me(self, call: Call[None]) -> AccountOutput:
        # The user may have been deleted since the session was read.
        return await self._get(call.user.id, errors.AuthenticationRequired)

    @operation(
        "PATCH", "/api/auth/users/{id}", "Change an employee's name, e-mail, role or department", Access.SUBORDINATE,
        tagged=True,
        failures=(errors.PreconditionFailed(), errors.EmailTaken(), errors.LastManagementUser("given another role")),
    )  # fmt: skip
    async def change_user(self, call: Call[AccountPatch]) -> AccountOutput:
        self.authorizer.require_higher(call.actor, call.input.model_dump(exclude_unset=True).get("role"), "change_user")
        return await self._update(call.id, call, call.actor)

    @operation(
        "PATCH", "/api/auth/me", "Change your own name", Access.SELF, tagged=True,
        failures=(errors.PreconditionFailed(),),
    )  # fmt: skip
    async def change_me(self, call: Call[OwnAccountPatch]) -> AccountOutput:
        return await self._update(call.user.id, call, call.user)

    @operation(
        "POST", "/api/auth/users/{id}/deactivate", "End an employee's access, without deleting them",
        Access.SUBORDINATE, tagged=True, failures=(errors.LastManagementUser("deactivated"),),
    )  # fmt: skip
    async def deactivate_user(self, call: Call[None]) -> AccountOutput:
        """End the user's sessions and API tokens, and refuse new ones until the user is reactivated."""
        return await self._end_access(call, "deactivated", self.clock(), ends_management="deactivated")

    @operation(
        "POST", "/api/auth/users/{id}/reactivate", "Let a deactivated employee log in again", Access.SUBORDINATE,
        tagged=True,
    )  # fmt: skip
    async def reactivate_user(self, call: Call[None]) -> AccountOutput:
        # End access again, because a login that ran during the deactivation may have created a session.
        return await self._end_access(call, "reactivated", None)

    def _visible(self, user: UserT, reader: Actor | None) -> UserT:
        """Return the user, but hide the e-mail from readers who may see only their own."""
        sees_all = not self.authorizer.enforced or reader is None or reader.manages or reader.id == user.id
        return user if sees_all else user.model_copy(update={"email": ""})

    async def _get(self, user_id: uuid.UUID, not_found: type[errors.ApiError]) -> AccountOutput:
        row = await self.find_row(select(*AccountOutput.columns(User)).where(col(User.id) == user_id))
        if row is None:
            raise not_found
        return AccountOutput.model_validate(row)

    async def _update(self, user_id: uuid.UUID, call: Call[Any], actor: Actor | None) -> AccountOutput:
        """Change the given fields. Setting a role also approves the account. If nothing changes, record no activity."""
        requested = call.input.model_dump(exclude_unset=True)
        if "role" in requested:
            requested["approved"] = True
        demotes = requested.get("role", "ceo") not in MANAGEMENT_ROLES
        async with transaction(self.engine) as connection:
            ends_management = "given another role" if demotes else None
            account = await lock_user(connection, user_id, actor, ends_management=ends_management)
            require_match(call.if_match, account)
            changed = {name: value for name, value in requested.items() if value != getattr(account, name)}
            if not changed:
                return account
            return await self._save(connection, actor, account, "updated", **changed)

    async def _end_access(
        self, call: Call[None], action: str, deactivated_at: datetime | None, *, ends_management: str | None = None
    ) -> AccountOutput:
        async with transaction(self.engine) as connection:
            account = await lock_user(connection, call.id, call.actor, ends_management=ends_management)
            if (account.deactivated_at is None) == (deactivated_at is None):
                return account
            await end_access(connection, call.id)
            return await self._save(connection, call.actor, account, action, deactivated_at=deactivated_at)

    async def _save(
        self, connection: AsyncConnection, actor: Actor | None, account: AccountOutput, action: str, **changed: Any
    ) -> AccountOutput:
        values = dict(changed)
        if "name" in changed:
            values["avatar"] = avatar(changed["name"])
        row = values | ({"email_key": email_key(changed["email"])} if "email" in changed else {})
        await save_user(connection, update(User).where(col(User.id) == account.id).values(row))
        after = account.model_copy(update=values)
        subject = Subject("user", account.id, after.name, account.model_dump(), changed)
        await record(connection, actor, action, self.clock(), subject)
        return after


async def _leave_tasks(connection: AsyncConnection, user_id: uuid.UUID, actor: Actor | None, now: datetime) -> None:
    assigned, reported = col(Task.assignee_id) == user_id, col(Task.reporter_id) == user_id
    fields = (col(Task.id), col(Task.title), col(Task.assignee_id), col(Task.reporter_id))
    # Also lock the tasks on which the user has commented. Deleting the user changes these comments, which could
    # otherwise deadlock with a concurrent deletion of their task.
    commented = col(Task.id).in_(select(col(Comment.task_id)).where(col(Comment.author_id) == user_id))
    affected = select(*fields).where(or_(assigned, reported, commented)).order_by(col(Task.id)).with_for_update()
    tasks = (await connection.execute(affected)).mappings().all()
    await connection.execute(update(Task).where(assigned).values(assignee_id=None, updated_at=now))
    await connection.execute(update(Task).where(reported).values(reporter_id=None, updated_at=now))
    subjects = [
        Subject("task", task["id"], task["title"], before=dict.fromkeys(cleared, user_id))
        for task in tasks
        if (cleared := [name for name in ("assignee_id", "reporter_id") if task[name] == user_id])
    ]
    await record(connection, actor, "updated", now, *subjects)
