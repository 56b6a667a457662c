"""Passwords as argon2id hashes, computed in threads that never keep the rest of the process waiting."""

import asyncio
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

from passlib.context import CryptContext

from employee_api.values import MAX_PASSWORD_LENGTH

# Below the event loop's own priority, so that a flood of logins leaves other requests their time.
_NICENESS = 10


class Passwords:
    """Hashes and verifies, as many at once as there are threads; the rest wait their turn."""

    def __init__(self, threads: int, *, memory_kib: int = 19_456, passes: int = 2) -> None:
        self._context = CryptContext(
            schemes=["argon2", "pbkdf2_sha256"],
            deprecated="auto",
            argon2__type="ID",
            argon2__memory_cost=memory_kib,
            argon2__time_cost=passes,
            argon2__parallelism=1,
        )
        self._nobodys_hash = self._context.hash("")
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="password", initializer=_yield_to_others)

    async def hash(self, password: str) -> str:
        """Hash a new password."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._context.hash, password)

    async def verify(self, password: str, stored: str | None) -> tuple[bool, str | None]:
        """Compare with a stored hash, or with nobody's at the same cost: whether it is right, and a better hash if any.

        The second value is a new hash to store when the stored one was made with older parameters.
        """
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._verify, password, stored)

    def close(self) -> None:
        """Let the threads go once they are done."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _verify(self, password: str, stored: str | None) -> tuple[bool, str | None]:
        # The work is the same whatever the reason for refusing: time must not tell who has an account.
        fits = len(password) <= MAX_PASSWORD_LENGTH
        right, better = self._context.verify_and_update(password if fits else "", stored or self._nobodys_hash)
        accepted = right and fits and stored is not None
        return accepted, better if accepted else None


def _yield_to_others() -> None:
    """Lower this thread's priority. Linux keeps one for each thread; elsewhere it is the process's, and stays."""
    if sys.platform == "linux":
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + _NICENESS)
