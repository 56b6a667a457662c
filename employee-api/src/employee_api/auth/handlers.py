"""Handlers of logins, passwords, sessions and API tokens."""

from dataclasses import dataclass

from typing_extensions import override

from employee_api.access import DEVICE_COOKIE, SESSION_COOKIE
from employee_api.auth.api_tokens import ApiTokenRepository
from employee_api.auth.authorization import add_log_fields, session_token
from employee_api.auth.devices import DEVICE_LIFETIME
from employee_api.auth.logins import LoginService
from employee_api.auth.schemas import (
    EndedSessions,
    LoginInput,
    NewTokenOutput,
    PasswordChangeInput,
    PasswordResetInput,
    SessionOutput,
    SignInPage,
    TokenInput,
    TokenOutput,
)
from employee_api.auth.sessions import SessionRepository
from employee_api.auth.sign_ins import SignInRepository
from employee_api.errors import AuthenticationRequired, SessionNotFound, TokenNotFound, UserNotFound
from employee_api.http.inputs import MAX_BODY_BYTES, JsonBody
from employee_api.http.operations import Call
from employee_api.pagination import PageQuery
from employee_api.schemas import Deleted, Success
from employee_api.settings import AuthMode
from employee_api.users.accounts import AccountRepository
from employee_api.users.password_changes import PasswordChangeRepository
from employee_api.users.registration import NewUserPreparer
from employee_api.users.repository import UserRepository
from employee_api.users.schemas import CreatedPasswordReset, UserOutput


class LoginBody(JsonBody):
    """A login: the usual body limit applies to everything but the password."""

    @override
    def parse(self, raw: bytes) -> LoginInput:
        credentials: LoginInput = super().parse(raw)
        if len(raw) - len(credentials.password.encode()) > MAX_BODY_BYTES:
            raise self.error()
        return credentials


@dataclass(frozen=True)
class LoginHandlers:
    """Logins, the log of sign-ins, and changes of passwords."""

    mode: AuthMode
    logins: LoginService
    sessions: SessionRepository
    sign_ins: SignInRepository
    users: UserRepository
    password_changes: PasswordChangeRepository
    new_users: NewUserPreparer

    async def login(self, call: Call[LoginInput]) -> UserOutput:
        """Verify the password, and create a session unless the mode is `off`."""
        if self.mode is AuthMode.OFF:
            return (await self.logins.verify(call)).user
        login = await self.logins.log_in(call)
        add_log_fields(login.account.user.id)
        call.cookies.append(_cookie(SESSION_COOKIE, login.session_token, self.sessions.lifetime_seconds))
        call.cookies.append(_cookie(DEVICE_COOKIE, login.device_token, int(DEVICE_LIFETIME.total_seconds())))
        return login.account.user

    async def logout(self, call: Call[None]) -> Success:
        if self.mode is not AuthMode.OFF and (token := session_token(call.request)):
            await self.sessions.delete(token)
            call.cookies.append(_cookie(SESSION_COOKIE, "", 0))
        return Success()

    async def list_own_sign_ins(self, call: Call[PageQuery]) -> SignInPage:
        return await self.sign_ins.search(call.user.id, call.input)

    async def list_sign_ins(self, call: Call[PageQuery]) -> SignInPage:
        return await self.sign_ins.search(call.path_id(UserNotFound()), call.input)

    async def change_own_password(self, call: Call[PasswordChangeInput]) -> Success:
        account, token = await self.users.find_own_account(call.user.id), session_token(call.request)
        if account is None or token is None:
            raise AuthenticationRequired
        await self.logins.confirm(call, account, call.input.current_password)
        password_hash = await call.while_connected(self.new_users.hash(call.input.new_password, "new_password"))
        await self.password_changes.change(account, password_hash, call.user, token)
        return Success()

    async def allow_password_reset(self, call: Call[None]) -> CreatedPasswordReset:
        return await self.password_changes.create_reset(call.path_id(UserNotFound()), call.actor)

    async def reset_password(self, call: Call[PasswordResetInput]) -> Success:
        await self.password_changes.check_reset(call.input.token)
        password_hash = await call.while_connected(self.new_users.hash(call.input.password))
        await self.password_changes.reset(call.input.token, password_hash)
        return Success()


@dataclass(frozen=True)
class SessionHandlers:
    """Users see and end their own sessions and API tokens; management does so for everyone."""

    sessions: SessionRepository
    tokens: ApiTokenRepository
    accounts: AccountRepository

    async def list_sessions(self, call: Call[None]) -> list[SessionOutput]:
        return await self.sessions.list_active(call.user.id, session_token(call.request))

    async def end_session(self, call: Call[None]) -> Deleted:
        session_id = call.path_id(SessionNotFound())
        await self.sessions.end(session_id, call.user)
        return Deleted(id=session_id)

    async def end_other_sessions(self, call: Call[None]) -> EndedSessions:
        ended = await self.sessions.end_all(call.user.id, call.user, except_token=session_token(call.request))
        return EndedSessions(ended=ended)

    async def list_sessions_of_user(self, call: Call[None]) -> list[SessionOutput]:
        account = await self.accounts.get(call.path_id(UserNotFound()))
        return await self.sessions.list_active(account.id, session_token(call.request))

    async def end_sessions_of_user(self, call: Call[None]) -> EndedSessions:
        return EndedSessions(ended=await self.sessions.end_all(call.path_id(UserNotFound()), call.actor))

    async def list_tokens(self, call: Call[None]) -> list[TokenOutput]:
        return await self.tokens.list_all(call.user.id)

    async def create_token(self, call: Call[TokenInput]) -> NewTokenOutput:
        token = await self.tokens.create(call.user, call.input)
        call.location(f"/api/auth/tokens/{token.id}")
        call.response_headers["cache-control"] = "no-store"
        return token

    async def revoke_token(self, call: Call[None]) -> Deleted:
        token_id = call.path_id(TokenNotFound())
        await self.tokens.revoke(call.user.id, token_id, call.user)
        return Deleted(id=token_id)

    async def list_tokens_of_user(self, call: Call[None]) -> list[TokenOutput]:
        account = await self.accounts.get(call.path_id(UserNotFound()))
        return await self.tokens.list_all(account.id)

    async def revoke_token_of_user(self, call: Call[None]) -> Deleted:
        user_id, token_id = call.path_id(UserNotFound()), call.path_id(TokenNotFound(), "token_id")
        await self.tokens.revoke(user_id, token_id, call.actor)
        return Deleted(id=token_id)


def _cookie(name: str, value: str, max_age_seconds: int) -> str:
    return f"{name}={value}; Max-Age={max_age_seconds}; Path=/; HttpOnly; Secure; SameSite=Strict"
