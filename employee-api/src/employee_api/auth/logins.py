"""Operations that verify the user's password: logging in, changing the password, and creating an API token.

Unless `AUTH_MODE` is `off`, attempts are also recorded. With `enforce`, too many failures make clients wait.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pydantic_core import from_json
from typing_extensions import override

from employee_api import errors
from employee_api.access import DEVICE_COOKIE, SESSION_COOKIE, Access, session_token
from employee_api.auth.api_tokens import ApiTokenHandlers
from employee_api.auth.login_limiter import Attempt, LoginLimiter
from employee_api.auth.schemas import LoginInput, NewTokenOutput, TokenInput
from employee_api.auth.sessions import SessionHandlers
from employee_api.auth.sign_ins import DEVICE_LIFETIME, DeviceRepository, Outcome, SignInHandlers
from employee_api.database import shared_transaction
from employee_api.failure_counts import count_key
from employee_api.fields import MAX_EMAIL_LENGTH, MAX_PASSWORD_LENGTH, email_key
from employee_api.http.authorization import Authorizer, add_log_fields
from employee_api.http.inputs import JsonBody
from employee_api.http.operations import Call, operation
from employee_api.models import User
from employee_api.schemas import Success
from employee_api.settings import AuthMode
from employee_api.users.password_changes import PasswordHandlers
from employee_api.users.passwords import HashingQueue, PasswordHasher
from employee_api.users.repository import UserRepository
from employee_api.users.schemas import PasswordChangeInput, UserOutput


@dataclass(frozen=True)
class LoginBody(JsonBody):
    """A login request. Credentials that are too long for any account get the same response as wrong ones.

    They are rejected before Unicode normalization, which would take minutes for a megabyte of combining characters.
    """

    error_text: str | None = "Email and password required"
    ignores_query: bool = True

    @override
    def too_long(self, start: bytes) -> errors.ApiError:
        with suppress(ValueError):
            given = from_json(start.decode(errors="ignore"), allow_partial="trailing-strings")
            if isinstance(given, dict) and _is_too_long(given.get("email"), given.get("password")):
                return errors.InvalidCredentials()
        return self.error()

    @override
    def parse(self, raw: bytes) -> LoginInput:
        credentials: LoginInput = super().parse(raw)
        if _is_too_long(credentials.email, credentials.password):
            raise errors.InvalidCredentials
        return credentials


def _is_too_long(email: object, password: object) -> bool:
    limits = (email, MAX_EMAIL_LENGTH), (password, MAX_PASSWORD_LENGTH)
    return any(isinstance(text, str) and len(text) > limit for text, limit in limits)


@dataclass(frozen=True)
class LoginHandlers:
    """Handles logins, and operations that require the password again in case the session was stolen."""

    users: UserRepository
    password_hasher: PasswordHasher
    sessions: SessionHandlers
    devices: DeviceRepository
    sign_ins: SignInHandlers
    authorizer: Authorizer
    limiter: LoginLimiter
    passwords: PasswordHandlers
    tokens: ApiTokenHandlers

    @operation(
        "POST", "/api/auth/login", "Log in by e-mail and password", reads=LoginBody, sets_cookies=True,
        failures=(errors.InvalidCredentials(), errors.TooManyPasswords()),
        enforced_failures=(errors.TooManyFailedLogins(),),
    )  # fmt: skip
    async def login(self, call: Call[LoginInput]) -> UserOutput:
        """Verify the password. Unless `AUTH_MODE` is `off`, also create a session and remember the device."""
        if self.authorizer.mode is AuthMode.OFF:
            verified = await self._verify(call, HashingQueue.LOGIN)
            if isinstance(verified, Outcome):
                raise errors.InvalidCredentials
            return UserOutput.model_validate(verified)
        async with self._attempt(call, email_key(call.input.email), "login") as attempt:
            verified = await self._verify(call, attempt.queue)
            if isinstance(verified, Outcome):
                await self._record_failure(call, attempt, verified)
                raise errors.InvalidCredentials
            await self._succeed(call, attempt, verified)
        add_log_fields(verified.id)
        return UserOutput.model_validate(verified)

    @operation("POST", "/api/auth/logout", "End the session, if there is one", sets_cookies=True)
    async def logout(self, call: Call[None]) -> Success:
        if self.authorizer.mode is not AuthMode.OFF and (token := session_token(call.request)):
            await self.sessions.delete(token)
            call.cookies.append(_cookie(SESSION_COOKIE, "", timedelta(0)))
        return Success()

    @operation(
        "PUT", "/api/auth/me/password", "Change your password, and end your other sessions", Access.SELF,
        enforced_failures=(errors.TooManyFailedLogins(),),
        failures=(errors.WeakPassword(field="new_password"), errors.WrongPassword(), errors.TooManyPasswords()),
    )  # fmt: skip
    async def change_own_password(self, call: Call[PasswordChangeInput]) -> Success:
        await self.passwords.change(call, await self._confirm(call, "change_own_password"))
        return Success()

    @operation(
        "POST", "/api/auth/tokens", "Create an API token for a program that acts for you", Access.SELF, creates=True,
        failures=(errors.TooManyTokens(), errors.WrongPassword(), errors.TooManyPasswords()),
        enforced_failures=(errors.TooManyFailedLogins(),),
    )  # fmt: skip
    async def create_token(self, call: Call[TokenInput]) -> NewTokenOutput:
        user = await self._confirm(call, "create_token")
        async with shared_transaction():
            token = await self.tokens.create(call)
            if not await self.users.lock_unchanged(user):  # the password has changed since it was verified
                raise errors.WrongPassword
        return token

    async def _confirm(self, call: Call[Any], operation: str) -> User:
        """Return the caller. Raise WrongPassword if the request's `current_password` is wrong.

        A wrong password counts as a failed login, so a stolen session doesn't make the password easier to guess.
        """
        user = await self.users.find(id=call.user.id)
        if user is None:
            raise errors.AuthenticationRequired
        async with self._attempt(call, user.email_key, operation) as attempt:
            given = call.input.current_password
            verification = self.password_hasher.verify(given, user.password_hash, attempt.queue)
            correct, _ = await call.while_connected(verification)
            if not correct:
                await self._record_failure(call, attempt, Outcome.WRONG_PASSWORD)
                raise errors.WrongPassword
            await self.limiter.counts.reset([attempt.own])  # keep the network's count: an attacker may have caused it
        return user

    @asynccontextmanager
    async def _attempt(self, call: Call[Any], email: str, operation: str) -> AsyncIterator[Attempt]:
        """Wait for earlier attempts to end. Refuse this attempt if too many attempts have failed."""
        device = await self.devices.find(call.request.cookies.get(DEVICE_COOKIE), email)
        attempt = self.limiter.attempt(email, call.origin["address"], device)
        async with AsyncExitStack() as stack:
            if self.authorizer.enforced:
                await call.while_connected(stack.enter_async_context(self.limiter.in_flight(attempt)))
            if exceeded := await self.limiter.exceeded(attempt):
                if self.authorizer.enforced and operation == "login":
                    await self._record_refusal(call, attempt)
                self.authorizer.refuse(exceeded, operation)
            yield attempt

    async def _verify(self, call: Call[LoginInput], queue: HashingQueue) -> User | Outcome:
        """Return the user if they may log in with this password; otherwise, the reason for the failure."""
        user = await self.users.find(email_key=email_key(call.input.email))
        stored = user.password_hash if user else None
        verification = self.password_hasher.verify(call.input.password, stored, queue)
        correct, new_hash = await call.while_connected(verification)
        if user is None or not correct:
            return Outcome.WRONG_PASSWORD
        if user.deactivated_at is not None:
            return Outcome.DEACTIVATED
        if new_hash is not None:
            await self.users.update_password_hash(user, new_hash)
            user.password_hash = new_hash
        return user

    # To avoid deadlocks, the transactions below lock users before failure counts.

    async def _succeed(self, call: Call[Any], attempt: Attempt, user: User) -> None:
        async with shared_transaction():
            # Don't create a session if the password has changed since it was verified.
            if not await self.users.lock_unchanged(user):
                raise errors.InvalidCredentials
            token = await self.sessions.create(user.id, call.origin)
            if attempt.device is None:
                device_token = await self.devices.add(user.id)
            else:
                device_token = call.request.cookies[DEVICE_COOKIE]
                await self.devices.use(attempt.device)
            await self.sign_ins.record(attempt.email, Outcome.SUCCESS, call.origin)
            await self.limiter.counts.reset([attempt.own])  # keep the network's count: an attacker may have caused it
        call.cookies.append(_cookie(SESSION_COOKIE, token, self.sessions.absolute))
        call.cookies.append(_cookie(DEVICE_COOKIE, device_token, DEVICE_LIFETIME))

    async def _record_failure(self, call: Call[Any], attempt: Attempt, outcome: Outcome) -> None:
        async with shared_transaction():
            await self.sign_ins.record(attempt.email, outcome, call.origin)
            await self.limiter.counts.add(attempt.slots)

    async def _record_refusal(self, call: Call[Any], attempt: Attempt) -> None:
        """Record only the first refused login per e-mail and time window, so that an attacker can't fill the table."""
        counts, key = self.limiter.counts, count_key("refusal", attempt.email)
        async with shared_transaction():
            if not await counts.read([key]) and (await counts.add([key]))[key].failures == 1:
                await self.sign_ins.record(attempt.email, Outcome.LIMITED, call.origin)


def _cookie(name: str, value: str, max_age: timedelta) -> str:
    return f"{name}={value}; Max-Age={int(max_age.total_seconds())}; Path=/; HttpOnly; Secure; SameSite=Strict"
