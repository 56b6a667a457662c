"""Confirms a user's password for a change that a stolen session must not allow."""

from contextlib import AsyncExitStack

from employee_api.access import DEVICE_COOKIE
from employee_api.auth.authorization import SessionAuthorizer
from employee_api.auth.devices import DeviceRepository
from employee_api.auth.login_limiter import LoginLimiter
from employee_api.auth.sign_ins import Outcome, SignInRepository
from employee_api.http.operations import Call, InputT
from employee_api.users.errors import WrongPassword
from employee_api.users.hashing_queues import HashingQueue
from employee_api.users.passwords import PasswordHasher
from employee_api.users.repository import Account
from employee_api.users.rules import email_key


class PasswordConfirmation:
    """Counts a wrong password like a failed login, so that a session does not help to guess it."""

    def __init__(
        self,
        *,
        password_hasher: PasswordHasher,
        devices: DeviceRepository,
        sign_ins: SignInRepository,
        authorizer: SessionAuthorizer,
        limiter: LoginLimiter,
    ) -> None:
        self._password_hasher = password_hasher
        self._devices = devices
        self._sign_ins = sign_ins
        self._authorizer = authorizer
        self._limiter = limiter

    async def confirm(self, call: Call[InputT], account: Account, password: str) -> None:
        """Raises WrongPassword; TooManyFailedLogins or TooManyPasswords if authorization is enforced."""
        email = email_key(account.user.email)
        device = await self._devices.find(call.request.cookies.get(DEVICE_COOKIE), email)
        attempt = self._limiter.attempt(email, call.caller.address, device)
        async with AsyncExitStack() as stack:
            if self._authorizer.enforced:
                await call.while_connected(stack.enter_async_context(self._limiter.in_flight(attempt)))
            if exceeded := await self._limiter.exceeded(attempt):
                self._authorizer.refuse(exceeded, "change_own_password")
            queue = HashingQueue.LOGIN if device is None else HashingQueue.KNOWN_DEVICE
            verification = self._password_hasher.verify(password, account.password_hash, queue)
            correct, _ = await call.while_connected(verification)
            if not correct:
                await self._limiter.record_failure(attempt)
                await self._sign_ins.record(email, Outcome.WRONG_PASSWORD, call.caller)
                raise WrongPassword
            await self._limiter.record_success(attempt)
