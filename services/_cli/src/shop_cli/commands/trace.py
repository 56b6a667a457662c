"""`shop trace`: show a trace of the running shop."""

import json
from typing import Annotated

import typer

from shop_cli import control_room_client
from shop_cli.commands.options import Json
from shop_cli.local.otlp_receiver import Span
from shop_cli.output.printing import console
from shop_cli.output.trace_tree import trace_tree


def trace(
    trace_id: Annotated[str, typer.Argument(metavar="TRACE", help="Id of the trace.")], *, as_json: Json = False
) -> None:
    """Show a trace as a tree: which service called which method, and how long each call took."""
    spans = control_room_client.get_trace(trace_id)
    if as_json:
        for span in spans:
            console.out(json.dumps(span), highlight=False)
        return
    console.print(trace_tree([Span(**span) for span in spans]))
