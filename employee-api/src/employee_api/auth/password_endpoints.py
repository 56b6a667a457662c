"""Endpoints for changing one's password, and for setting a forgotten one."""

from employee_api.access import Access
from employee_api.auth.authorization import session_token
from employee_api.auth.errors import TooManyFailedLogins
from employee_api.auth.password_confirmation import PasswordConfirmation
from employee_api.auth.schemas import PasswordChangeInput, PasswordResetInput
from employee_api.errors import AuthenticationRequired
from employee_api.fields import parse_id
from employee_api.http.inputs import JsonBody, NoInput
from employee_api.http.operations import Call, Endpoint, Operation
from employee_api.http.outputs import JsonOutput
from employee_api.schemas import Success
from employee_api.users.errors import InvalidPasswordReset, TooManyPasswords, UserNotFound, WeakPassword, WrongPassword
from employee_api.users.new_users import NewUserPreparer
from employee_api.users.password_changes import PasswordChangeRepository
from employee_api.users.repository import UserRepository
from employee_api.users.schemas import CreatedPasswordReset


class PasswordEndpoints:
    def __init__(
        self,
        users: UserRepository,
        changes: PasswordChangeRepository,
        confirmation: PasswordConfirmation,
        new_users: NewUserPreparer,
    ) -> None:
        self._users = users
        self._changes = changes
        self._confirmation = confirmation
        self._new_users = new_users

    def operations(self) -> list[Operation]:
        return [
            Endpoint(
                "PUT", "/api/auth/me/password", "Change your password, and end your other sessions",
                JsonBody(PasswordChangeInput), JsonOutput(Success), self.change_own_password, access=Access.SELF,
                failures=(WeakPassword(field="new_password"), WrongPassword(), TooManyPasswords()),
                enforced_failures=(TooManyFailedLogins(),),
            ),
            Endpoint(
                "POST", "/api/auth/users/{id}/password-reset",
                "Let an employee set a new password once, within 24 hours",
                NoInput(), JsonOutput(CreatedPasswordReset), self.allow_password_reset,
                access=Access.MANAGEMENT, failures=(UserNotFound(),),
            ),
            Endpoint(
                "POST", "/api/auth/password-reset", "Set a new password with the token of a reset",
                JsonBody(PasswordResetInput), JsonOutput(Success), self.reset_password,
                failures=(WeakPassword(), InvalidPasswordReset(), TooManyPasswords()),
            ),
        ]  # fmt: skip

    async def change_own_password(self, call: Call[PasswordChangeInput]) -> Success:
        account, token = await self._users.find_own_account(call.user.id), session_token(call.request)
        if account is None or token is None:
            raise AuthenticationRequired
        await self._confirmation.confirm(call, account, call.input.current_password)
        password_hash = await call.while_connected(self._new_users.hash(call.input.new_password, "new_password"))
        await self._changes.change(account, password_hash, call.user, token)
        return Success()

    async def allow_password_reset(self, call: Call[None]) -> CreatedPasswordReset:
        user_id = parse_id(call.request.path_params["id"])
        if user_id is None:
            raise UserNotFound
        return await self._changes.create_reset(user_id, call.actor)

    async def reset_password(self, call: Call[PasswordResetInput]) -> Success:
        await self._changes.check_reset(call.input.token)
        password_hash = await call.while_connected(self._new_users.hash(call.input.password))
        await self._changes.reset(call.input.token, password_hash)
        return Success()
