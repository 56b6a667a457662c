"""The trace of an order: its id is chosen before the call, and the trace is shown after it."""

import asyncio
import time
from typing import Any

from chassis.errors import NotFound
from shop_cli import control_room_client
from shop_cli.local.spans import Span
from shop_cli.output.printing import console, print_json
from shop_cli.output.trace_tree import trace_tree

_PLACE_ORDER = "shop.CheckoutService/PlaceOrder"
# Every service exports its spans once a second.
_EXPORT_SECONDS = 1.5
_MAX_SECONDS = 10.0
_POLL_SECONDS = 0.2


async def show_order_trace(trace_id: str, *, as_json: bool) -> None:
    """Wait until the services have exported the trace of a finished call, and print it."""
    started = time.monotonic()
    spans: list[dict[str, Any]] = []
    while time.monotonic() - started < _MAX_SECONDS:
        await asyncio.sleep(_POLL_SECONDS)
        spans = await asyncio.to_thread(_read, trace_id)
        is_served = any(span["name"] == _PLACE_ORDER and span["kind"] == "SERVER" for span in spans)
        if is_served and time.monotonic() - started > _EXPORT_SECONDS:
            break
    if as_json:
        print_json(*spans)
    else:
        console.print(f"\ntrace {trace_id}", markup=False)
        console.print(trace_tree([Span(**span) for span in spans]))


def _read(trace_id: str) -> list[dict[str, Any]]:
    try:
        return control_room_client.get_trace(trace_id)
    except NotFound:
        return []
