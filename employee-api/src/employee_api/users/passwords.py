"""Hashes and verifies passwords with argon2id, in threads with a lower priority than the event loop."""

import asyncio
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from enum import Enum
from typing import TypeVar

from passlib.context import CryptContext

from chassis.background import shared_result
from chassis.telemetry.instruments import Telemetry
from chassis.telemetry.store_operations import record_wait
from employee_api.errors import TooManyPasswords
from employee_api.fields import MAX_PASSWORD_LENGTH, normalize_password

T = TypeVar("T")

# Added to the niceness of hashing threads, so that floods of logins don't slow down other requests.
_NICENESS = 10
# A hash takes tens of milliseconds, so the last request in a full queue waits for a few seconds.
_MAX_WAITING = 200


class BoundedSemaphore:
    """Admits up to `slots` callers at a time, in order of arrival, and lets at most `waiting` more callers wait."""

    def __init__(self, slots: int, waiting: int) -> None:
        self._semaphore = asyncio.Semaphore(slots)
        self._capacity = slots + waiting
        self.users = 0

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Wait for a slot, and hold it during the block. Raise TooManyPasswords if too many callers already wait."""
        if self.users >= self._capacity:
            raise TooManyPasswords
        self.users += 1
        try:
            async with self._semaphore:
                yield
        finally:
            self.users -= 1


class HashingQueue(Enum):
    """Each kind of hashing work has its own queue, so that strangers' guesses don't delay logins from known devices."""

    KNOWN_DEVICE = "known device"
    LOGIN = "login"
    NEW_PASSWORD = "new password"  # noqa: S105 - not a password


class PasswordHasher:
    """Hashes at most `threads` passwords at once; other calls wait in queues that take turns.

    Each hash takes `memory_kib` of memory and makes `passes` passes over it. Waits are recorded as spans. Use a hasher
    from one event loop only. A call that is cancelled while waiting leaves its queue.
    """

    def __init__(
        self, threads: int, telemetry: Telemetry | None = None, *, memory_kib: int = 19_456, passes: int = 2
    ) -> None:
        self._context = CryptContext(
            schemes=["argon2", "pbkdf2_sha256"],
            deprecated="auto",
            argon2__type="ID",
            argon2__memory_cost=memory_kib,
            argon2__time_cost=passes,
            argon2__parallelism=1,
        )
        self._dummy_hash = self._context.hash("")
        self._tracer = (telemetry or Telemetry()).tracer
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="password", initializer=_lower_priority)
        self._threads = asyncio.Semaphore(threads)
        # Only the first call in each queue waits for a thread. Those calls are served in order, so queues take turns.
        self._first = {queue: BoundedSemaphore(1, _MAX_WAITING - 1) for queue in HashingQueue}

    async def hash(self, password: str) -> str:
        """Hash a new password. Raise TooManyPasswords if the queue for new passwords is full."""
        return await self.run(HashingQueue.NEW_PASSWORD, lambda: self._context.hash(normalize_password(password)))

    async def verify(
        self, password: str, stored: str | None, queue: HashingQueue = HashingQueue.LOGIN
    ) -> tuple[bool, str | None]:
        """Return whether a password is correct, and a new hash to store if `stored` has outdated parameters.

        Pass None as `stored` for an unknown user: verification then takes the same time, and fails.
        """
        return await self.run(queue, lambda: self._verify(password, stored))

    def close(self) -> None:
        """Cancel waiting calls, and end each thread after its current call."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    async def run(self, queue: HashingQueue, work: Callable[[], T]) -> T:
        """Run `work` in a thread when its turn comes. Raise TooManyPasswords if the queue is full."""
        submitted = time.perf_counter()
        async with self._first[queue].slot():
            await self._threads.acquire()
        started = time.perf_counter()
        running = asyncio.get_running_loop().run_in_executor(self._executor, work)
        running.add_done_callback(lambda _: self._threads.release())
        record_wait(self._tracer, "password.wait", submitted, started)
        # Hashing that has begun can't be stopped, so it occupies its thread even if the caller is cancelled.
        return await shared_result(running)

    def _verify(self, password: str, stored: str | None) -> tuple[bool, str | None]:
        if len(password) > MAX_PASSWORD_LENGTH:  # normalizing a very long password would block all threads
            return self._verify_form("", None)
        normalized = normalize_password(password)
        correct, new_hash = self._verify_form(normalized, stored)
        if not correct and password != normalized:
            # Old hashes were computed from passwords as entered, without normalization.
            correct, _ = self._verify_form(password, stored)
            new_hash = self._context.hash(normalized) if correct and len(normalized) <= MAX_PASSWORD_LENGTH else None
        return correct, new_hash

    def _verify_form(self, password: str, stored: str | None) -> tuple[bool, str | None]:
        # Do the same work in every case, because response times must not reveal which e-mails are registered.
        fits = len(password) <= MAX_PASSWORD_LENGTH
        matches, new_hash = self._context.verify_and_update(password if fits else "", stored or self._dummy_hash)
        correct = matches and fits and stored is not None
        return correct, new_hash if correct else None


def _lower_priority() -> None:
    # Only Linux has per-thread priorities; elsewhere this would slow down the whole process.
    if sys.platform == "linux":
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + _NICENESS)
