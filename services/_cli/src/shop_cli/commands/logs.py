import subprocess
from pathlib import Path
from typing import Annotated

import typer

from shop_cli.commands.options import Json, Service
from shop_cli.control_room_client import require_run
from shop_cli.local.service_logs import LogLine, parse_line
from shop_cli.local.workspace import discover, find
from shop_cli.output.printing import console

Follow = Annotated[bool, typer.Option("--follow", help="Print new lines as they are written, until Ctrl-C.")]


def logs(
    service: Service,
    *,
    trace: Annotated[str, typer.Option(help="Only the lines of the trace with this id.")] = "",
    follow: Follow = False,
    lines: Annotated[int, typer.Option(min=0, help="Number of lines to begin with.")] = 50,
    as_json: Json = False,
) -> None:
    """Print the last lines of a service's log. `--json` prints them as they are in the file."""
    path = Path(require_run().folder) / ".shop" / "log" / f"{service}.log"
    if not path.exists():  # stores have logs too, but `find` knows only services
        find(discover(), service)
    command = ["tail", "-n", "+1" if trace else str(lines), *(["-F"] if follow else []), str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace") as tail:  # noqa: S603
        for text in tail.stdout or ():
            if trace in text:
                _print(parse_line(text.rstrip("\n"), service), as_json=as_json)


def _print(line: LogLine, *, as_json: bool) -> None:
    if as_json:
        console.out(line.text)
        return
    fields = " ".join(f"{name}={value}" for name, value in line.fields.items())
    trace = f" trace={line.trace_id}" if line.trace_id else ""
    console.out(f"{line.time[11:23]} {line.level:<8} {line.event} {fields}{trace}" if line.time else line.event)
