"""Endpoints for login, logout and the log of sign-ins."""

from typing_extensions import override

from employee_api.access import DEVICE_COOKIE, SESSION_COOKIE, Access
from employee_api.auth.authorization import add_log_fields, session_token
from employee_api.auth.devices import DEVICE_LIFETIME
from employee_api.auth.errors import InvalidCredentials, TooManyFailedLogins
from employee_api.auth.logins import LoginService
from employee_api.auth.schemas import LoginInput, SignInPage
from employee_api.auth.sessions import SessionRepository
from employee_api.auth.sign_ins import SignInRepository
from employee_api.fields import parse_id
from employee_api.http.inputs import MAX_BODY_BYTES, JsonBody, NoInput, QueryParameters
from employee_api.http.operations import Call, Endpoint, Operation
from employee_api.http.outputs import JsonOutput
from employee_api.pagination import PageQuery
from employee_api.schemas import Success
from employee_api.settings import AuthMode
from employee_api.users.errors import TooManyPasswords, UserNotFound
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
        self, logins: LoginService, sessions: SessionRepository, sign_ins: SignInRepository, mode: AuthMode
    ) -> None:
        self._logins = logins
        self._sessions = sessions
        self._sign_ins = sign_ins
        self._mode = mode

    def operations(self) -> list[Operation]:
        sign_ins = JsonOutput(SignInPage)
        return [
            Endpoint(
                "POST", "/api/auth/login", "Log in by e-mail and password",
                _LoginBody(LoginInput, "Email and password required", _MAX_LOGIN_BYTES, ignores_query=True),
                JsonOutput(UserOutput), self.login,
                headers=("Set-Cookie",),
                failures=(InvalidCredentials(), TooManyPasswords()), enforced_failures=(TooManyFailedLogins(),),
            ),
            Endpoint(
                "POST", "/api/auth/logout", "End the session, if there is one",
                NoInput(), JsonOutput(Success), self.logout, headers=("Set-Cookie",),
            ),
            Endpoint(
                "GET", "/api/auth/sign-ins", "List the attempts to sign in to your account, newest first",
                QueryParameters(PageQuery), sign_ins, self.list_own_sign_ins, access=Access.SELF,
            ),
            Endpoint(
                "GET", "/api/auth/users/{id}/sign-ins", "List the attempts to sign in to an account, newest first",
                QueryParameters(PageQuery), sign_ins, self.list_sign_ins,
                access=Access.MANAGEMENT, failures=(UserNotFound(),),
            ),
        ]  # fmt: skip

    async def login(self, call: Call[LoginInput]) -> UserOutput:
        """Verify the password, and create a session unless the mode is `off`."""
        if self._mode is AuthMode.OFF:
            return (await self._logins.verify(call)).user
        login = await self._logins.log_in(call)
        add_log_fields(login.account.user.id)
        call.cookies.append(_cookie(SESSION_COOKIE, login.session_token, self._sessions.lifetime_seconds))
        call.cookies.append(_cookie(DEVICE_COOKIE, login.device_token, int(DEVICE_LIFETIME.total_seconds())))
        return login.account.user

    async def logout(self, call: Call[None]) -> Success:
        if self._mode is not AuthMode.OFF and (token := session_token(call.request)):
            await self._sessions.delete(token)
            call.cookies.append(_cookie(SESSION_COOKIE, "", 0))
        return Success()

    async def list_own_sign_ins(self, call: Call[PageQuery]) -> SignInPage:
        return await self._sign_ins.search(call.user.id, call.input)

    async def list_sign_ins(self, call: Call[PageQuery]) -> SignInPage:
        user_id = parse_id(call.request.path_params["id"])
        if user_id is None:
            raise UserNotFound
        return await self._sign_ins.search(user_id, call.input)


def _cookie(name: str, value: str, max_age_seconds: int) -> str:
    return f"{name}={value}; Max-Age={max_age_seconds}; Path=/; HttpOnly; Secure; SameSite=Strict"
