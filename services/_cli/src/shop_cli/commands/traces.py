from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from shop_cli import control_room_client
from shop_cli.commands.options import Json
from shop_cli.local.spans import Span
from shop_cli.output.printing import Columns, console, print_json, print_list
from shop_cli.output.trace_tree import trace_tree


def traces(
    *,
    service: Annotated[str, typer.Option(help="Only traces in which this service took part.")] = "",
    min_ms: Annotated[float, typer.Option("--min-ms", min=0, help="Only traces that took at least this long.")] = 0,
    errors: Annotated[bool, typer.Option("--errors", help="Only traces with a failed call.")] = False,
    order: Annotated[str, typer.Option(help="Only traces of the order with this id.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=5_000, help="Maximum number of traces.")] = 20,
    as_json: Json = False,
) -> None:
    """List the running shop's latest traces. It stores traces of orders and errors longest."""
    found = control_room_client.find_traces(
        service=service, min_ms=f"{min_ms:g}", errors="1" if errors else "", order=order, limit=str(limit)
    )
    print_list(found, _COLUMNS, as_json=as_json)


def trace(
    trace_id: Annotated[str, typer.Argument(metavar="TRACE", help="Id of the trace.")], *, as_json: Json = False
) -> None:
    """Show a trace as a tree: which service called which method, and how long each call took."""
    print_trace(control_room_client.get_trace(trace_id), as_json=as_json)


def print_trace(spans: Sequence[Mapping[str, Any]], *, as_json: bool) -> None:
    if as_json:
        print_json(*spans)
    else:
        console.print(trace_tree([Span(**span) for span in spans]))


_COLUMNS: Columns[dict[str, Any]] = {
    "Trace": lambda found: found["trace_id"],
    "Started": lambda found: f"{datetime.fromtimestamp(found['started_nanos'] / 1e9, UTC):%H:%M:%S}",
    "First call": lambda found: f"{found['service']} {found['name'].removeprefix('shop.')}",
    "Ms ": lambda found: f"{found['milliseconds']:.1f}",
    "Spans ": lambda found: str(found["spans"]),
    "Failed": lambda found: "yes" if found["failed"] else "",
    "Order": lambda found: found["order_id"],
}
