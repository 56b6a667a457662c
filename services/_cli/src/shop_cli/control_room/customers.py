"""Simulated customers: `shop load` as a process, started and stopped from the control room."""

import signal
import sys
from pathlib import Path

from typing_extensions import override

from chassis.errors import FailedPrecondition
from shop_cli.local.child_process import ChildProcess


class Customers(ChildProcess):
    """The customers of the storefront with this URL, None if the shop has none."""

    stop_signal = signal.SIGINT

    def __init__(self, storefront: str | None, log_path: Path) -> None:
        super().__init__("customers", log_path)
        self._storefront = storefront
        self._rate = 0.0

    @property
    def rate(self) -> float:
        """Sessions a second; 0 while no customers arrive."""
        return self._rate if self.running else 0.0

    @override
    async def start(self) -> None:
        command = ("-m", "shop_cli", "load", "--url", str(self._storefront), "--rate", f"{self._rate:g}")
        await self.spawn(sys.executable, "-P", *command, folder=Path.cwd())

    async def set_rate(self, sessions_per_second: float) -> None:
        """Change how many sessions begin per second; 0 stops them. Raise FailedPrecondition."""
        if self._storefront is None:
            raise FailedPrecondition("this shop has no storefront", reason="NO_CUSTOMERS")
        await self.stop()
        self._rate = sessions_per_second
        if sessions_per_second > 0:
            await self.start()
