"""Logging in, and the employees."""

from http import HTTPStatus

from employee_api.activities import Actor
from employee_api.auth import SESSION_COOKIE, Access, FailedLogins, Policy, token_of
from employee_api.errors import (
    BadRequest,
    EmailTaken,
    InvalidCredentials,
    LastLeader,
    TooManyFailedLogins,
    UserNotFound,
)
from employee_api.operations import MAX_BODY_BYTES, Call, Operation
from employee_api.passwords import Passwords
from employee_api.repository import Account, NewUser, UserRepository
from employee_api.rules import DEFAULT_ROLE, email_key, parse_id
from employee_api.schemas import Deleted, LoginInput, Success, UserInput, UserOutput
from employee_api.sessions import SessionRepository
from employee_api.settings import AuthMode

_LOGIN_TEXT = "Email and password required"
_USER_TEXT = "Name, email and password required"
# A password of a megabyte is a wrong one like any other, and gets the same answer.
_MAX_LOGIN_BYTES = 2 * 1024 * 1024


class UserEndpoints:
    """Operations on users and their sessions."""

    def __init__(
        self,
        users: UserRepository,
        sessions: SessionRepository,
        passwords: Passwords,
        policy: Policy,
        failed_logins: FailedLogins,
    ) -> None:
        self._users = users
        self._sessions = sessions
        self._passwords = passwords
        self._policy = policy
        self._failed_logins = failed_logins

    def operations(self) -> list[Operation]:
        """What this group serves."""
        return [
            Operation(
                "POST", "/api/auth/login", "Log in by e-mail and password", self.login, UserOutput,
                body=LoginInput, bad_request=_LOGIN_TEXT, max_body_bytes=_MAX_LOGIN_BYTES,
                failures=(InvalidCredentials(),), enforced_failures=(TooManyFailedLogins(),),
            ),
            Operation("POST", "/api/auth/logout", "End the session, if there is one", self.logout, Success),
            Operation(
                "POST", "/api/auth/register", "Register as an employee", self.register, UserOutput, HTTPStatus.CREATED,
                body=UserInput, bad_request=_USER_TEXT, failures=(EmailTaken(),),
            ),
            Operation(
                "GET", "/api/auth/users", "All employees", self.list_users, list[UserOutput], access=Access.SESSION
            ),
            Operation(
                "POST", "/api/auth/users", "Add an employee", self.add_user, UserOutput, HTTPStatus.CREATED,
                Access.LEADER, body=UserInput, bad_request=_USER_TEXT, failures=(EmailTaken(),),
            ),
            Operation(
                "DELETE", "/api/auth/users/{id}", "Delete an employee, taking them off all tasks", self.delete_user,
                Deleted, access=Access.LEADER, failures=(UserNotFound(),), enforced_failures=(LastLeader(),),
            ),
        ]  # fmt: skip

    async def login(self, call: Call, given: LoginInput) -> UserOutput:
        """Compare the password; begin a session unless the mode is off."""
        if call.body_bytes - len(given.password.encode()) > MAX_BODY_BYTES:
            raise BadRequest(_LOGIN_TEXT)
        account = await self._authenticated(call, given)
        if self._policy.mode is not AuthMode.OFF:
            token = await self._sessions.begin(account.user.id)
            call.headers["set-cookie"] = _cookie(token, self._sessions.lifetime_seconds)
        return account.user

    async def logout(self, call: Call) -> Success:
        """End the session."""
        if self._policy.mode is not AuthMode.OFF and (token := token_of(call.request)):
            await self._sessions.end(token)
            call.headers["set-cookie"] = _cookie("", 0)
        return Success()

    async def register(self, call: Call, new: UserInput) -> UserOutput:
        """Create a user: where the policy is enforced, one without rights."""
        role = DEFAULT_ROLE if self._policy.enforced else new.role or DEFAULT_ROLE
        return await self._add(new, role, call.actor)

    async def list_users(self, _call: Call) -> list[UserOutput]:
        """All users."""
        return await self._users.everyone()

    async def add_user(self, call: Call, new: UserInput) -> UserOutput:
        """Create a user."""
        return await self._add(new, new.role or DEFAULT_ROLE, call.actor)

    async def delete_user(self, call: Call) -> Deleted:
        """Delete a user; an id that is none is nobody's."""
        user_id = parse_id(call.request.path_params["id"])
        if user_id is None:
            raise UserNotFound
        await self._users.remove(user_id, call.actor, keep_a_leader=self._policy.enforced)
        return Deleted(id=user_id)

    async def _authenticated(self, call: Call, given: LoginInput) -> Account:
        email, address = email_key(given.email), call.request.client.host if call.request.client else ""
        if exceeded := self._failed_logins.exceeded(email, address):
            self._policy.refuse(exceeded, "login")
        self._failed_logins.attempted(email, address)
        account = await self._users.account(given.email)
        right, better = await self._passwords.verify(given.password, account.password_hash if account else None)
        if account is None or not right:
            raise InvalidCredentials
        self._failed_logins.succeeded(email, address)
        if better is not None:
            await self._users.replace_hash(account, better)
        return account

    async def _add(self, new: UserInput, role: str, actor: Actor | None) -> UserOutput:
        password_hash = await self._passwords.hash(new.password)
        return await self._users.add(NewUser(new.name, new.email, password_hash, role, new.dept or ""), actor)


def _cookie(token: str, max_age_seconds: int) -> str:
    return f"{SESSION_COOKIE}={token}; Max-Age={max_age_seconds}; Path=/; HttpOnly; Secure; SameSite=Strict"
