import asyncio
import math
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from typing_extensions import override

from chassis.errors import FailedPrecondition, InvalidArgument
from shop_cli.local.child_process import ChildProcess

_MAX_RATE = 1_000.0


class Customers(ChildProcess):
    """Runs `shop load`. `storefront` is the URL that customers visit; None if the shop has no storefront."""

    page = "/"
    template = '{% include "_customers.html" %}'
    stop_signal = signal.SIGINT

    def __init__(self, storefront: str | None, log_path: Path) -> None:
        super().__init__("customers", log_path)
        self._storefront = storefront
        self._rate = 0.0
        self._changing = asyncio.Lock()

    @property
    def rate(self) -> float:
        """The number of sessions that start per second; 0 while `shop load` is not running."""
        return self._rate if self.running else 0.0

    @override
    async def start(self) -> None:
        command = ("-m", "shop_cli", "load", "--url", str(self._storefront), "--rate", f"{self._rate:g}")
        await self.spawn(sys.executable, "-P", *command, folder=Path.cwd())

    async def act(self, form: Mapping[str, str]) -> None:
        try:
            rate = float(form.get("rate", ""))
        except ValueError:
            rate = math.nan
        if not 0 <= rate <= _MAX_RATE:
            raise InvalidArgument.field("rate", f"must be a number from 0 to {_MAX_RATE:g}")
        await self.set_rate(rate)

    async def set_rate(self, sessions_per_second: float) -> None:
        """Set how many sessions start per second. Raise FailedPrecondition if the shop has no storefront."""
        if self._storefront is None:
            raise FailedPrecondition("this shop has no storefront", reason="NO_CUSTOMERS")
        async with self._changing:  # a double click must not start two processes
            await self.stop()
            self._rate = sessions_per_second
            if sessions_per_second > 0:
                await self.start()
