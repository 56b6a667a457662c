"""Passwords that clients enter: verified, and limited and recorded unless `AUTH_MODE` is `off`."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy.ext.asyncio import AsyncEngine

from employee_api.access import DEVICE_COOKIE, Caller
from employee_api.auth.authorization import SessionAuthorizer
from employee_api.auth.devices import DeviceRepository
from employee_api.auth.login_limiter import LimitedAttempt, LoginLimiter
from employee_api.auth.schemas import LoginInput
from employee_api.auth.sessions import SessionRepository
from employee_api.auth.sign_ins import Outcome, SignInRepository
from employee_api.database import shared_transaction
from employee_api.errors import InvalidCredentials, WrongPassword
from employee_api.http.operations import Call
from employee_api.users.passwords import HashingQueue, PasswordHasher
from employee_api.users.repository import Account, UserRepository
from employee_api.users.rules import email_key

_LOGIN, _CHANGE = "login", "change_own_password"


@dataclass(frozen=True)
class Login:
    """A successful login; its tokens are for cookies."""

    account: Account
    session_token: str
    device_token: str


@dataclass(frozen=True)
class _Attempt:
    """A password that a client has entered, as it is limited and recorded."""

    caller: Caller
    email: str
    device: bytes | None
    device_token: str | None
    limited: LimitedAttempt

    @property
    def queue(self) -> HashingQueue:
        return HashingQueue.LOGIN if self.device is None else HashingQueue.KNOWN_DEVICE


@dataclass(frozen=True)
class LoginService:
    engine: AsyncEngine
    users: UserRepository
    password_hasher: PasswordHasher
    sessions: SessionRepository
    devices: DeviceRepository
    sign_ins: SignInRepository
    authorizer: SessionAuthorizer
    limiter: LoginLimiter

    async def verify(self, call: Call[LoginInput]) -> Account:
        """Return the account with this e-mail and password. Raises InvalidCredentials."""
        account, outcome = await self._verify(call, HashingQueue.LOGIN)
        if account is None or outcome is not Outcome.SUCCESS:
            raise InvalidCredentials
        return account

    async def log_in(self, call: Call[LoginInput]) -> Login:
        """Verify the password, create a session, and remember the device. Raises InvalidCredentials.

        Raises TooManyFailedLogins or TooManyPasswords if authorization is enforced.
        """
        async with self._attempt(call, email_key(call.input.email), _LOGIN) as attempt:
            account, outcome = await self._verify(call, attempt.queue)
            if account is None or outcome is not Outcome.SUCCESS:
                await self._record_failure(attempt, outcome)
                raise InvalidCredentials
            return await self._succeed(attempt, account)

    async def confirm(self, call: Call[Any], account: Account, password: str) -> None:
        """Verify the password of a session's user before a change that a stolen session must not allow.

        A wrong one counts like a failed login, so that a session does not help to guess it. Raises WrongPassword;
        TooManyFailedLogins or TooManyPasswords if authorization is enforced.
        """
        async with self._attempt(call, email_key(account.user.email), _CHANGE) as attempt:
            verification = self.password_hasher.verify(password, account.password_hash, attempt.queue)
            correct, _ = await call.while_connected(verification)
            if not correct:
                await self._record_failure(attempt, Outcome.WRONG_PASSWORD)
                raise WrongPassword
            await self.limiter.record_success(attempt.limited)

    @asynccontextmanager
    async def _attempt(self, call: Call[Any], email: str, operation: str) -> AsyncIterator[_Attempt]:
        """Wait for the attempts before this one, and refuse it if too many have failed."""
        token = call.request.cookies.get(DEVICE_COOKIE)
        device = await self.devices.find(token, email)
        limited = self.limiter.attempt(email, call.caller.address, device)
        attempt = _Attempt(call.caller, email, device, token, limited)
        async with AsyncExitStack() as stack:
            if self.authorizer.enforced:
                await call.while_connected(stack.enter_async_context(self.limiter.in_flight(limited)))
            if exceeded := await self.limiter.exceeded(limited):
                if self.authorizer.enforced and operation == _LOGIN:
                    await self._record_refusal(attempt)
                self.authorizer.refuse(exceeded, operation)
            yield attempt

    async def _verify(self, call: Call[LoginInput], queue: HashingQueue) -> tuple[Account | None, Outcome]:
        """Return the account with this e-mail, and what becomes of the attempt."""
        account = await self.users.find_account(call.input.email)
        stored = account.password_hash if account else None
        verification = self.password_hasher.verify(call.input.password, stored, queue)
        correct, new_hash = await call.while_connected(verification)
        if account is None or not correct:
            return account, Outcome.WRONG_PASSWORD
        if account.deactivated:
            return account, Outcome.DEACTIVATED
        if new_hash is not None:
            await self.users.update_password_hash(account, new_hash)
            account = replace(account, password_hash=new_hash)
        return account, Outcome.SUCCESS

    # Users are locked before counts.

    async def _succeed(self, attempt: _Attempt, account: Account) -> Login:
        async with shared_transaction(self.engine):
            # A session must not outlive the change of the password with which it began.
            if not await self.users.lock_unchanged(account):
                raise InvalidCredentials
            session_token = await self.sessions.create(account.user.id, attempt.caller)
            device_token = await self._remember_device(attempt, account)
            await self.sign_ins.record(attempt.email, Outcome.SUCCESS, attempt.caller)
            await self.limiter.record_success(attempt.limited)
        return Login(account, session_token, device_token)

    async def _remember_device(self, attempt: _Attempt, account: Account) -> str:
        if attempt.device is None or attempt.device_token is None:
            return await self.devices.add(account.user.id)
        await self.devices.use(attempt.device)
        return attempt.device_token

    async def _record_failure(self, attempt: _Attempt, outcome: Outcome) -> None:
        async with shared_transaction(self.engine):
            await self.sign_ins.record(attempt.email, outcome, attempt.caller)
            await self.limiter.record_failure(attempt.limited)

    async def _record_refusal(self, attempt: _Attempt) -> None:
        """Record the first refusal of a window: an attacker must not fill the table with attempts that cost nothing."""
        async with shared_transaction(self.engine):
            if await self.limiter.is_first_refusal(attempt.email):
                await self.sign_ins.record(attempt.email, Outcome.LIMITED, attempt.caller)
