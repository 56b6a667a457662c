"""Simulated customers: `shop load` as a process, started and stopped from the control room."""

import asyncio
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

from chassis.errors import FailedPrecondition
from shop_cli.local import launch

_STOP_SECONDS = 10.0


class NoCustomers(FailedPrecondition):
    """This shop has no storefront that customers could visit."""


class Customers:
    """The customers of a storefront.

    Args:
        storefront: its URL, None if the shop has none.
        log_path: for the output of the process.

    Attributes:
        rate: sessions a second while customers are on, 0 while they are off.
    """

    def __init__(self, storefront: str | None, log_path: Path) -> None:
        self._storefront = storefront
        self._log_path = log_path
        self._rate = 0.0
        self._child: asyncio.subprocess.Process | None = None

    @property
    def rate(self) -> float:
        return self._rate if self._child is not None and self._child.returncode is None else 0.0

    async def set_rate(self, sessions_per_second: float) -> None:
        """Let so many customers a second arrive until the next change; 0 stops them. Raise NoCustomers."""
        if self._storefront is None:
            raise NoCustomers("this shop has no storefront")
        await self.stop()
        if sessions_per_second > 0:
            await self._start(self._storefront, sessions_per_second)

    async def stop(self) -> None:
        """Stop the customers; return when they have finished."""
        if self._child is None or self._child.returncode is not None:
            return
        self._child.send_signal(signal.SIGINT)
        try:
            await asyncio.wait_for(self._child.wait(), _STOP_SECONDS)
        except TimeoutError:
            with suppress(ProcessLookupError):
                self._child.kill()
            await self._child.wait()

    async def _start(self, storefront: str, rate: float) -> None:
        command = ("-m", "shop_cli", "load", "--url", storefront, "--rate", f"{rate:g}")
        with self._log_path.open("ab") as log:
            self._child = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", launch.__file__, str(os.getpid()), sys.executable, "-P", *command),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._rate = rate
