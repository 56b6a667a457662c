"""Logins by password: limited and recorded unless `AUTH_MODE` is `off`."""

from contextlib import AsyncExitStack
from dataclasses import dataclass, replace

from sqlalchemy.ext.asyncio import AsyncEngine

from employee_api.access import DEVICE_COOKIE
from employee_api.auth.authorization import SessionAuthorizer
from employee_api.auth.devices import DeviceRepository
from employee_api.auth.errors import InvalidCredentials
from employee_api.auth.login_limiter import LimitedAttempt, LoginLimiter
from employee_api.auth.schemas import LoginInput
from employee_api.auth.sessions import SessionRepository
from employee_api.auth.sign_ins import Outcome, SignInRepository
from employee_api.database import shared_transaction
from employee_api.http.operations import Call
from employee_api.users.hashing_queues import HashingQueue
from employee_api.users.passwords import PasswordHasher
from employee_api.users.repository import Account, UserRepository
from employee_api.users.rules import email_key


@dataclass(frozen=True)
class Login:
    """A successful login; its tokens are for cookies."""

    account: Account
    session_token: str
    device_token: str


@dataclass(frozen=True)
class _Attempt:
    """An attempt to log in from a client, as it is limited and recorded."""

    call: Call[LoginInput]
    email: str
    device: bytes | None
    limited: LimitedAttempt


class LoginService:
    def __init__(
        self,
        *,
        engine: AsyncEngine,
        users: UserRepository,
        password_hasher: PasswordHasher,
        sessions: SessionRepository,
        devices: DeviceRepository,
        sign_ins: SignInRepository,
        authorizer: SessionAuthorizer,
        limiter: LoginLimiter,
    ) -> None:
        self._engine = engine
        self._users = users
        self._sessions = sessions
        self._devices = devices
        self._sign_ins = sign_ins
        self._password_hasher = password_hasher
        self._authorizer = authorizer
        self._limiter = limiter

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
        email = email_key(call.input.email)
        device = await self._devices.find(call.request.cookies.get(DEVICE_COOKIE), email)
        attempt = _Attempt(call, email, device, self._limiter.attempt(email, call.caller.address, device))
        async with AsyncExitStack() as stack:
            if self._authorizer.enforced:
                in_flight = stack.enter_async_context(self._limiter.in_flight(attempt.limited))
                await call.while_connected(in_flight)
            await self._refuse_exceeded(attempt)
            queue = HashingQueue.LOGIN if device is None else HashingQueue.KNOWN_DEVICE
            account, outcome = await self._verify(call, queue)
            if account is None or outcome is not Outcome.SUCCESS:
                await self._record_failure(attempt, outcome)
                raise InvalidCredentials
            return await self._succeed(attempt, account)

    async def _refuse_exceeded(self, attempt: _Attempt) -> None:
        if exceeded := await self._limiter.exceeded(attempt.limited):
            if self._authorizer.enforced:
                await self._record_refusal(attempt)
            self._authorizer.refuse(exceeded, "login")

    async def _verify(self, call: Call[LoginInput], queue: HashingQueue) -> tuple[Account | None, Outcome]:
        """Return the account with this e-mail, and what becomes of the attempt."""
        account = await self._users.find_account(call.input.email)
        stored = account.password_hash if account else None
        verification = self._password_hasher.verify(call.input.password, stored, queue)
        correct, new_hash = await call.while_connected(verification)
        if account is None or not correct:
            return account, Outcome.WRONG_PASSWORD
        if account.deactivated:
            return account, Outcome.DEACTIVATED
        if new_hash is not None:
            await self._users.update_password_hash(account, new_hash)
            account = replace(account, password_hash=new_hash)
        return account, Outcome.SUCCESS

    # Users are locked before counts.

    async def _succeed(self, attempt: _Attempt, account: Account) -> Login:
        caller = attempt.call.caller
        async with shared_transaction(self._engine):
            # A session must not outlive the change of the password with which it began.
            if not await self._users.lock_unchanged(account):
                raise InvalidCredentials
            session_token = await self._sessions.create(account.user.id, caller)
            device_token = await self._remember_device(attempt, account)
            await self._sign_ins.record(attempt.email, Outcome.SUCCESS, caller)
            await self._limiter.record_success(attempt.limited)
        return Login(account, session_token, device_token)

    async def _remember_device(self, attempt: _Attempt, account: Account) -> str:
        if attempt.device is None:
            return await self._devices.add(account.user.id)
        await self._devices.use(attempt.device)
        return attempt.call.request.cookies[DEVICE_COOKIE]

    async def _record_failure(self, attempt: _Attempt, outcome: Outcome) -> None:
        async with shared_transaction(self._engine):
            await self._sign_ins.record(attempt.email, outcome, attempt.call.caller)
            await self._limiter.record_failure(attempt.limited)

    async def _record_refusal(self, attempt: _Attempt) -> None:
        """Record the first refusal of a window: an attacker must not fill the table with attempts that cost nothing."""
        async with shared_transaction(self._engine):
            if await self._limiter.is_first_refusal(attempt.email):
                await self._sign_ins.record(attempt.email, Outcome.LIMITED, attempt.call.caller)
