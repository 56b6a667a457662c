"""The trace of an order: its id is chosen before the call, and the trace is shown after it."""

import asyncio
import json
import secrets
import time
from dataclasses import asdict

from chassis.errors import NotFound
from shop_cli import control_room_client
from shop_cli.local.spans import Span
from shop_cli.output.printing import console
from shop_cli.output.trace_tree import trace_tree

_PLACE_ORDER = "shop.CheckoutService/PlaceOrder"
# Every service exports its spans once a second.
_EXPORT_SECONDS = 1.5
_MAX_SECONDS = 10.0
_POLL_SECONDS = 0.2


class OrderTrace:
    """The trace of an order that is about to be placed. Raises NoShop if no shop runs."""

    def __init__(self) -> None:
        control_room_client.require_run()
        self._trace_id = secrets.token_hex(16)

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """The call metadata that makes the call part of this trace."""
        return (("traceparent", f"00-{self._trace_id}-{secrets.token_hex(8)}-01"),)

    async def show(self, *, as_json: bool) -> None:
        """Wait until the services have exported the trace of the finished call, and print it."""
        started = time.monotonic()
        spans: list[Span] = []
        while time.monotonic() - started < _MAX_SECONDS:
            await asyncio.sleep(_POLL_SECONDS)
            spans = await asyncio.to_thread(self._read)
            is_served = any(span.name == _PLACE_ORDER and span.kind == "SERVER" for span in spans)
            if is_served and time.monotonic() - started > _EXPORT_SECONDS:
                break
        if as_json:
            for span in spans:
                console.out(json.dumps(asdict(span)), highlight=False)
        else:
            console.print(f"\ntrace {self._trace_id}", markup=False)
            console.print(trace_tree(spans))

    def _read(self) -> list[Span]:
        try:
            return [Span(**span) for span in control_room_client.get_trace(self._trace_id)]
        except NotFound:
            return []
