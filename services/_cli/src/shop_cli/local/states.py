"""Shows how a shop's processes are: a live table in a terminal, a line for each change elsewhere."""

import asyncio
import time
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from rich.live import Live
from rich.table import Table

from shop_cli.local.processes import Process, Shop
from shop_cli.output import console, table

_STARTING_SECONDS = 10.0
_COLOURS = {"serving": "green", "starting": "yellow"}


async def states_of(shop: Shop) -> dict[str, str]:
    """In a word for each process: starting, serving, not ready, or how it ended."""
    return dict(
        zip((process.name for process in shop), await asyncio.gather(*(_state(each) for each in shop)), strict=True)
    )


async def _state(process: Process) -> str:
    if not process.running:
        return f"ended ({process.exit_code})"
    if await process.is_serving():
        return "serving"
    return "starting" if time.monotonic() - process.started_at < _STARTING_SECONDS else "not ready"


class StatesDisplay:
    """A context in which `show` tells the states of a shop as they change."""

    def __init__(self, shop: Shop) -> None:
        self._shop = shop
        self._live = Live(console=console, auto_refresh=False)
        self._told: dict[str, tuple[str, int]] = {}

    def __enter__(self) -> Self:
        if console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if console.is_terminal:
            self._live.stop()

    def show(self, states: dict[str, str]) -> None:
        """Tell the states, as `states_of` gives them."""
        if console.is_terminal:
            self._live.update(_table(self._shop, states), refresh=True)
        else:
            for process in self._shop:
                self._tell_change(process, states[process.name])

    def _tell_change(self, process: Process, state: str) -> None:
        # A process may end and serve again between two looks.
        now = (state, process.starts)
        if self._told.get(process.name) != now:
            self._told[process.name] = now
            console.print(f"{process.name:<16} {process.address:<16} {state}", markup=False, soft_wrap=True)


def _table(shop: Iterable[Process], states: dict[str, str]) -> Table:
    made = table(["Service", "Address", "State", "Restarts "], [], caption="Logs are in .shop/log/, one for each.")
    for process in shop:
        state = states[process.name]
        restarts = str(max(0, process.starts - 1))
        made.add_row(process.name, process.address, f"[{_COLOURS.get(state, 'red')}]{state}", restarts)
    return made
