from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import delete, update
from sqlmodel import col

from employee_api import errors
from employee_api.access import DEVICE_COOKIE, Access, hash_token, session_token
from employee_api.activities import Subject, record
from employee_api.database import Repository, transaction
from employee_api.http.authorization import Authorizer
from employee_api.http.operations import Call, operation
from employee_api.models import SingleUseLink, User
from employee_api.schemas import Success
from employee_api.users.links import LinkPurpose, create_link, end_access, is_usable, use_link
from employee_api.users.registration import NewUserPreparer
from employee_api.users.repository import lock_user
from employee_api.users.schemas import CreatedPasswordReset, PasswordChangeInput, PasswordResetInput

_RESET_LIFETIME = timedelta(hours=24)


@dataclass
class PasswordHandlers(Repository):
    """Handles password changes. A new password ends all access gained with the old one.

    If authorization is enforced, a link to reset a password is valid only while its creator outranks the user.
    """

    new_users: NewUserPreparer
    authorizer: Authorizer

    async def change(self, call: Call[PasswordChangeInput], verified: User) -> None:
        """Change the password; end all access but this session. Raise WrongPassword if another request changed it."""
        password_hash = await call.while_connected(self.new_users.hash(call.input.new_password, "new_password"))
        async with transaction(self.engine) as connection:
            user = await lock_user(connection, verified.id, call.user)
            unchanged = (col(User.id) == user.id, col(User.password_hash) == verified.password_hash)
            changed = await connection.execute(update(User).where(*unchanged).values(password_hash=password_hash))
            if changed.rowcount == 0:
                raise errors.WrongPassword
            kept = (session_token(call.request), call.request.cookies.get(DEVICE_COOKIE, ""))
            await end_access(connection, user.id, [hash_token(token) for token in kept])
            subject = Subject("user", user.id, user.name)
            await record(connection, call.user, "changed_password", self.clock(), subject)

    @operation(
        "POST", "/api/auth/users/{id}/password-reset", "Let an employee set a new password once, within 24 hours",
        Access.SUBORDINATE,
    )  # fmt: skip
    async def allow_password_reset(self, call: Call[None]) -> CreatedPasswordReset:
        """Create a link that lets the user set a password, and delete earlier links for this user."""
        user_id, now = call.id, self.clock()
        if call.actor is not None and call.actor.id == user_id:  # a stolen session must not allow a password reset
            self.authorizer.refuse(errors.HigherRoleRequired(), "allow_password_reset")
        async with transaction(self.engine) as connection:
            user = await lock_user(connection, user_id, call.actor)
            await connection.execute(delete(SingleUseLink).where(col(SingleUseLink.user_id) == user_id))
            link, token = await create_link(
                connection, LinkPurpose.PASSWORD_RESET, _RESET_LIFETIME, call.actor, now, user_id=user_id
            )
            await record(connection, call.actor, "allowed_password_reset", now, Subject("user", user.id, user.name))
        return CreatedPasswordReset(user_id=user_id, token=token, expires_at=link.expires_at)

    @operation(
        "POST", "/api/auth/password-reset", "Set a new password with the token of a reset",
        failures=(errors.WeakPassword(), errors.InvalidPasswordReset(), errors.TooManyPasswords()),
    )  # fmt: skip
    async def reset_password(self, call: Call[PasswordResetInput]) -> Success:
        """Set the password of the link's user, and end all access gained with the old password."""
        token = call.input.token
        if not await is_usable(self, LinkPurpose.PASSWORD_RESET, token):  # check before hashing, which is expensive
            raise errors.InvalidPasswordReset
        password_hash = await call.while_connected(self.new_users.hash(call.input.password))
        now, enforced = self.clock(), self.authorizer.enforced
        async with transaction(self.engine) as connection:
            link = await use_link(connection, LinkPurpose.PASSWORD_RESET, token, now, require_manager=enforced)
            if link is None:
                raise errors.InvalidPasswordReset
            user = await lock_user(connection, link.user_id, None)
            await connection.execute(update(User).where(col(User.id) == user.id).values(password_hash=password_hash))
            await end_access(connection, user.id)
            await record(connection, None, "reset_password", now, Subject("user", user.id, user.name))
        return Success()
