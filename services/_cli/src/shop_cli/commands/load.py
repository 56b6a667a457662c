import importlib.util
import json
import os
import signal
import subprocess
import sys
from typing import Annotated, Any, Literal

import typer

from shop_cli.clients import default_address
from shop_cli.commands.options import Json, finite
from shop_cli.output.printing import console, counted, print_json, print_table
from shop_cli.output.visible import visible

_FIGURES = (
    "{seconds:>6.0f} s  {rate:>6.1f} sessions/s  {in_flight:>5} in flight  {requests_per_second:>7.1f} requests/s  "
    "p50 {p50_ms} ms  p99 {p99_ms} ms  {orders} orders  {errors} errors  {dropped} dropped"
)
_COUNTS = {"sessions": "session", "orders": "order", "dropped": "session"}

Shape = Annotated[
    Literal["steady", "daily", "spike", "step"],
    typer.Option(help="daily: from night to noon to night. spike: five times the rate. step: rises in five steps."),
]
Duration = Annotated[
    float | None, typer.Option(min=0.1, metavar="SECONDS", help="How long to run. Default: until Ctrl-C.")
]
Url = Annotated[
    str | None,
    typer.Option(help="URL of the storefront. Default: $STOREFRONT_ADDR, else the running shop, else the local port."),
]


def load(
    *,
    rate: Annotated[float, typer.Option(min=0.001, callback=finite, help="Sessions that begin per second.")] = 1,
    shape: Shape = "steady",
    duration: Duration = None,
    url: Url = None,
    seed: Annotated[
        str | None, typer.Option(help="Repeat the arrivals and choices of an earlier run with this seed.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Send simulated customers to the storefront, and print response times and errors.

    A slow response doesn't delay other sessions, and latencies include any delay before a request is sent. Exit status:
    0 if every page was correct, 1 after errors or if sessions were dropped, 2 for an invalid option.
    """
    if importlib.util.find_spec("load_generator") is None:
        sys.exit("shop load needs the package load-generator, which make setup installs in the repository")
    settings = {
        "STOREFRONT_URL": url or f"http://{default_address('storefront', internal=False)}",
        "RATE": str(rate),
        "SHAPE": shape,
        "DURATION_SECONDS": "" if duration is None else str(duration),
        "SEED": seed or "",
        "WORKERS": "0",
        "WEB_PORT": "0",
        "FIGURES_SECONDS": "1",
    }
    # Use a separate process: Locust patches the standard library for gevent, and gRPC doesn't work with these patches.
    command = [sys.executable, "-P", "-m", "load_generator"]
    # Start a new session. Otherwise, Ctrl-C would signal the child twice: directly and through the handler below.
    with subprocess.Popen(  # noqa: S603 - this runs our own program
        command, env={**os.environ, **settings}, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: process.terminate())
        summary = _show_figures(process)
    if summary is not None:
        _print_summary(summary, as_json=as_json)
    raise typer.Exit(process.returncode)


def _show_figures(process: subprocess.Popen[str]) -> dict[str, Any] | None:
    """Print the load generator's figures to standard error until it exits. Return its summary, if there is one."""
    summary = None
    for line in process.stdout or ():
        event = json.loads(line)
        match event["event"]:
            case "summary":
                summary = event
            case "figures":
                typer.echo(_FIGURES.format(**event), err=True)
            case "started":
                typer.echo(f"seed {event['seed']}", err=True)
            case _:
                typer.echo(visible(line.rstrip()), err=True)
    return summary


def _print_summary(summary: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json({name: value for name, value in summary.items() if name != "event"})
        return
    columns = ["Page", "Requests ", "Failures ", "p50 ms ", "p99 ms "]
    names = ("page", "requests", "failures", "p50_ms", "p99_ms")
    total = {**summary, "page": "all", "failures": sum(page["failures"] for page in summary["pages"])}
    print_table(columns, [[str(row[name]) for name in names] for row in [*summary["pages"], total]])
    if summary["errors"]:
        rows = [[error["page"], error["reason"], str(error["count"])] for error in summary["errors"]]
        print_table(["Error on", "Reason", "Count "], rows)
    counts = {name: counted(summary[name], kind) for name, kind in _COUNTS.items()}
    console.print(
        "{sessions} in {seconds} s ({rate} a second), {orders}, {repeats} of them submitted twice, "
        "{dropped} dropped".format(**{**summary, **counts})
    )
