"""Show the states of a shop's processes: as a live table in a terminal, elsewhere one line per change."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Self

from rich.live import Live
from rich.table import Table
from rich.text import Text

from shop_cli.local.child_process import ChildProcess
from shop_cli.output.printing import console, table

_WIDE = 60
_COLOURS = {"serving": "green", "starting": "yellow", "frozen": "blue"}


class StatusDisplay:
    """A live table while in the context, if the output is a terminal."""

    def __init__(self, processes: Iterable[ChildProcess]) -> None:
        self._processes = list(processes)
        self._live = Live(console=console, auto_refresh=False)
        self._last_printed: dict[str, tuple[str, int]] = {}

    def __enter__(self) -> Self:
        if console.is_interactive:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if console.is_interactive:
            self._live.stop()

    def update(self, states: dict[str, str]) -> None:
        """Show the states that `process_states` returned."""
        if console.is_interactive:  # unlike a terminal that cannot move its cursor (TERM=dumb)
            self._live.update(_table(self._processes, states), refresh=True)
        else:
            for process in self._processes:
                self._print_if_changed(process, states[process.name])

    def _print_if_changed(self, process: ChildProcess, state: str) -> None:
        # Comparing the number of starts as well detects a restart between two updates.
        current = (state, process.starts)
        if self._last_printed.get(process.name) != current:
            self._last_printed[process.name] = current
            console.print(f"{process.name:<16} {process.address:<16} {state}", markup=False, soft_wrap=True)


def _table(processes: Sequence[ChildProcess], states: dict[str, str]) -> Table:
    caption = Text(f"Logs: {_logs(processes[0])}/<service>.log")
    columns = ["Service", "State", "Address", "Restarts "][: 4 if console.width >= _WIDE else 2]
    result = table(columns, [], caption=caption)
    for process in processes:
        state = states[process.name]
        restarts = str(max(0, process.starts - 1))
        # Not markup: what is printed below a live table without markup redraws the table without it.
        cells: list[str | Text] = [process.name, Text(state, _COLOURS.get(state, "red")), process.address, restarts]
        result.add_row(*cells[: len(columns)])
    return result


def _logs(process: ChildProcess) -> Path:
    """Return the folder of the logs, relative to the current one if it is inside."""
    folder = process.log_path.parent.absolute()
    return folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder
