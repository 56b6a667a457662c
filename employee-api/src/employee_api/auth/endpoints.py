"""Endpoints for login and logout."""

from typing_extensions import override

from employee_api.access import SESSION_COOKIE
from employee_api.auth.authorization import SessionAuthorizer, session_token
from employee_api.auth.login_limiter import LoginLimiter
from employee_api.auth.schemas import LoginInput
from employee_api.auth.sessions import SessionRepository
from employee_api.errors import InvalidCredentials, TooManyFailedLogins, TooManyPasswords
from employee_api.http.inputs import MAX_BODY_BYTES, JsonBody, NoInput
from employee_api.http.operations import Call, Endpoint, Operation
from employee_api.http.outputs import JsonOutput
from employee_api.schemas import Success
from employee_api.settings import AuthMode
from employee_api.users.passwords import PasswordHasher
from employee_api.users.repository import Account, UserRepository
from employee_api.users.rules import email_key
from employee_api.users.schemas import UserOutput

# A password of a megabyte gets the same response as any other wrong password.
_MAX_LOGIN_BYTES = 2 * 1024 * 1024


class _LoginBody(JsonBody[LoginInput]):
    """A login: the usual body limit applies to everything but the password."""

    @override
    def parse(self, raw: bytes) -> LoginInput:
        credentials = super().parse(raw)
        if len(raw) - len(credentials.password.encode()) > MAX_BODY_BYTES:
            raise self.error()
        return credentials


class AuthEndpoints:
    def __init__(
        self,
        users: UserRepository,
        sessions: SessionRepository,
        password_hasher: PasswordHasher,
        authorizer: SessionAuthorizer,
        login_limiter: LoginLimiter,
    ) -> None:
        self._users = users
        self._sessions = sessions
        self._password_hasher = password_hasher
        self._authorizer = authorizer
        self._login_limiter = login_limiter

    def operations(self) -> list[Operation]:
        return [
            Endpoint(
                "POST", "/api/auth/login", "Log in by e-mail and password",
                _LoginBody(LoginInput, "Email and password required", _MAX_LOGIN_BYTES),
                JsonOutput(UserOutput), self.login,
                headers=("Set-Cookie",),
                failures=(InvalidCredentials(), TooManyPasswords()), enforced_failures=(TooManyFailedLogins(),),
            ),
            Endpoint(
                "POST", "/api/auth/logout", "End the session, if there is one",
                NoInput(), JsonOutput(Success), self.logout, headers=("Set-Cookie",),
            ),
        ]  # fmt: skip

    async def login(self, call: Call[LoginInput]) -> UserOutput:
        """Verify the password, and create a session unless the mode is `off`."""
        account = await self._authenticate(call)
        if self._authorizer.mode is not AuthMode.OFF:
            token = await self._sessions.create(account.user.id, call.caller)
            call.response_headers["set-cookie"] = _cookie(token, self._sessions.lifetime_seconds)
        return account.user

    async def logout(self, call: Call[None]) -> Success:
        if self._authorizer.mode is not AuthMode.OFF and (token := session_token(call.request)):
            await self._sessions.delete(token)
            call.response_headers["set-cookie"] = _cookie("", 0)
        return Success()

    async def _authenticate(self, call: Call[LoginInput]) -> Account:
        credentials = call.input
        email, address = email_key(credentials.email), call.caller.address
        if exceeded := self._login_limiter.exceeded(email, address):
            self._authorizer.refuse(exceeded, "login")
        self._login_limiter.record_attempt(email, address)
        account = await self._users.find_account(credentials.email)
        stored = account.password_hash if account else None
        correct, new_hash = await call.while_connected(self._password_hasher.verify(credentials.password, stored))
        if account is None or not correct or account.deactivated:
            raise InvalidCredentials
        self._login_limiter.record_success(email, address)
        if new_hash is not None:
            await self._users.update_password_hash(account, new_hash)
        return account


def _cookie(token: str, max_age_seconds: int) -> str:
    return f"{SESSION_COOKIE}={token}; Max-Age={max_age_seconds}; Path=/; HttpOnly; Secure; SameSite=Strict"
