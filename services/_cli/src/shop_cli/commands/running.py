"""Commands that observe and disrupt the shop that `shop up` runs."""

import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from shop_cli import control_room_client
from shop_cli.commands.options import MAX_INT32, Json, Service
from shop_cli.local.service_logs import LogLine, parse_line
from shop_cli.local.spans import Span
from shop_cli.local.workspace import discover, find
from shop_cli.output.printing import Columns, console, counted, print_fields, print_json, print_list, print_table
from shop_cli.output.trace_tree import trace_tree


def status(*, as_json: Json = False) -> None:
    """Show the running shop's services, their calls in the last minute, and whether all records agree."""
    found = control_room_client.call("GET", "api", "status")
    if as_json:
        print_json(found)
        return
    columns = ["Service", "State", "Calls/s ", "Errors/s ", "p50 ms ", "p99 ms ", "Restarts ", "Port"]
    print_table(columns, map(_service_row, found["services"]))
    console.out()
    control_room = control_room_client.require_run().link
    proof = ("last 15 minutes", _reconciliation(found["reconciliation"]))
    elsewhere = found["telemetry_elsewhere"]
    calls = ("calls", f"exported to {elsewhere}, so none are counted here" if elsewhere else "")
    print_fields([calls, proof, ("storefront", found["storefront"] or ""), ("control room", control_room)])


def _service_row(service: dict[str, Any]) -> list[str]:
    numbers = [f"{service[name]:.1f}" for name in ("rate", "error_rate", "p50_milliseconds", "p99_milliseconds")]
    port = service["address"].rpartition(":")[2]  # full addresses wouldn't fit into 80 columns
    return [service["name"], service["state"], *numbers, str(service["restarts"]), port]


def _reconciliation(found: dict[str, Any]) -> str:
    if found["unread"]:
        return f"records not read: {found['unread']}"
    states = "{complete} complete, {declined} declined, {closed} closed, {in_progress} in progress".format(**found)
    effects = ", ".join(counted(found[f"{noun}s"], noun) for noun in ("charge", "shipment", "confirmation"))
    mismatches = counted(len(found["mismatches"]), "mismatch", "mismatches")
    return f"{counted(found['orders'], 'order')}: {states}; {effects}; {mismatches}"


Follow = Annotated[bool, typer.Option("--follow", help="Print new lines as they are written, until Ctrl-C.")]


def logs(
    service: Service,
    *,
    trace: Annotated[str, typer.Option(help="Only the lines of the trace with this id.")] = "",
    follow: Follow = False,
    lines: Annotated[int, typer.Option(min=0, max=MAX_INT32, help="Number of lines to begin with.")] = 50,
    as_json: Json = False,
) -> None:
    """Print the last lines of a service's log. `--json` prints the lines unchanged."""
    path = Path(control_room_client.require_run().folder) / ".shop" / "log" / f"{service}.log"
    if not path.exists():  # stores such as Valkey have logs too, but `find` rejects their names
        find(discover(), service)
    command = ["tail", "-n", "+1" if trace else str(lines), *(["-F"] if follow else []), str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace") as tail:  # noqa: S603
        for text in tail.stdout or ():
            if trace in text:
                line = text.rstrip("\n")
                console.out(line if as_json else _format(parse_line(line, service)))


def _format(line: LogLine) -> str:
    fields = " ".join(f"{name}={value}" for name, value in line.fields.items())
    trace = f" trace={line.trace_id}" if line.trace_id else ""
    return f"{line.time[11:23]} {line.level:<8} {line.event} {fields}{trace}" if line.time else line.event


def traces(
    *,
    service: Annotated[str, typer.Option(help="Only traces in which this service took part.")] = "",
    min_ms: Annotated[float, typer.Option("--min-ms", min=0, help="Only traces that took at least this long.")] = 0,
    errors: Annotated[bool, typer.Option("--errors", help="Only traces with a failed call.")] = False,
    order: Annotated[str, typer.Option(help="Only traces of the order with this id.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=5_000, help="Maximum number of traces.")] = 20,
    as_json: Json = False,
) -> None:
    """List the running shop's latest traces. Traces with an order or an error are stored longest."""
    query = {"service": service, "min_ms": f"{min_ms:f}", "order": order, "limit": str(limit)}
    found = control_room_client.call("GET", "api", "traces", **query, errors="1" if errors else "")
    print_list(found, _TRACE_COLUMNS, as_json=as_json)


def trace(
    trace_id: Annotated[str, typer.Argument(metavar="TRACE", help="Id of the trace.")], *, as_json: Json = False
) -> None:
    """Show a trace as a tree: which service called which method, and how long each call took."""
    print_trace(control_room_client.call("GET", "api", "traces", trace_id), as_json=as_json)


def print_trace(spans: Sequence[Mapping[str, Any]], *, as_json: bool) -> None:
    if as_json:
        print_json(*spans)
    else:
        console.print(trace_tree([Span(**span) for span in spans]))


_TRACE_COLUMNS: Columns[dict[str, Any]] = {
    "Trace": lambda found: found["trace_id"],
    "Started": lambda found: f"{datetime.fromtimestamp(found['started_nanos'] / 1e9, UTC):%H:%M:%S}",
    "First call": lambda found: f"{found['service']} {found['name'].removeprefix('shop.')}",
    "Ms ": lambda found: f"{found['milliseconds']:.1f}",
    "Spans ": lambda found: str(found["spans"]),
    "Failed": lambda found: "yes" if found["failed"] else "",
    "Order": lambda found: found["order_id"],
}


def kill(service: Service) -> None:
    """Kill a service (SIGKILL); `shop up` starts it again."""
    control_room_client.call("POST", "services", service, "kill")
    console.out(f"{service} was killed; `shop up` starts it again")


def freeze(service: Service) -> None:
    """Freeze a service (SIGSTOP). Its connections stay open, but it does not respond."""
    control_room_client.call("POST", "services", service, "freeze")
    console.out(f"{service} is frozen until `shop resume {service}`")


def resume(service: Service) -> None:
    """Let a frozen service continue (SIGCONT)."""
    control_room_client.call("POST", "services", service, "resume")
    console.out(f"{service} continues")


def restart(service: Service) -> None:
    """Drain and stop a service (SIGTERM); `shop up` starts it again."""
    control_room_client.call("POST", "services", service, "restart")
    console.out(f"{service} drains, stops and is started again")
