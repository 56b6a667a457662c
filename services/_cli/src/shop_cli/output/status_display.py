"""Show the states of a shop's processes: as a live table in a terminal, elsewhere one line per change."""

from collections.abc import Iterable
from pathlib import Path
from typing import Self

from rich.live import Live
from rich.table import Table
from rich.text import Text

from shop_cli.local.processes import Process, Shop
from shop_cli.output.printing import console, table

_COLOURS = {"serving": "green", "starting": "yellow", "frozen": "blue"}


class StatusDisplay:
    """A live table while in the context, if the output is a terminal."""

    def __init__(self, shop: Shop) -> None:
        self._shop = shop
        self._live = Live(console=console, auto_refresh=False)
        self._last_printed: dict[str, tuple[str, int]] = {}

    def __enter__(self) -> Self:
        if console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if console.is_terminal:
            self._live.stop()

    def update(self, states: dict[str, str]) -> None:
        """Show the states that `process_states` returned."""
        if console.is_terminal:
            self._live.update(_table(self._shop, states), refresh=True)
        else:
            for process in self._shop:
                self._print_if_changed(process, states[process.name])

    def _print_if_changed(self, process: Process, state: str) -> None:
        # Comparing the number of starts as well detects a restart between two updates.
        current = (state, process.starts)
        if self._last_printed.get(process.name) != current:
            self._last_printed[process.name] = current
            console.print(f"{process.name:<16} {process.address:<16} {state}", markup=False, soft_wrap=True)


def _table(shop: Iterable[Process], states: dict[str, str]) -> Table:
    result = table(["Service", "Address", "State", "Restarts "], [], caption=f"Logs: {_logs(shop)}/<service>.log")
    for process in shop:
        state = states[process.name]
        restarts = str(max(0, process.starts - 1))
        # Not markup: what is printed below a live table without markup redraws the table without it.
        result.add_row(process.name, process.address, Text(state, _COLOURS.get(state, "red")), restarts)
    return result


def _logs(shop: Iterable[Process]) -> Path:
    """Return the folder of the logs, relative to the current one if it is inside."""
    folder = next(iter(shop)).log_path.parent.absolute()
    return folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder
