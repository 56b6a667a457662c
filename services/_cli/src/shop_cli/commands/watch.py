"""`shop orders watch`: orders as they change."""

import asyncio
from typing import Annotated

import typer

from shop_cli.clients import journal_client
from shop_cli.commands.options import InternalAddress, Json, async_command
from shop_cli.output.order_states import order_state_name
from shop_cli.output.printing import amount, console, format_time, print_json
from shop_internal import orders_pb2

_POLL_SECONDS = 0.5

Limit = Annotated[int, typer.Option(min=1, max=1000, help="Number of latest orders that are watched.")]


@async_command
async def watch(*, limit: Limit = 100, as_json: Json = False, address: InternalAddress = None) -> None:
    """Print a line for each order that begins or changes, until Ctrl-C."""
    seen: dict[str, orders_pb2.Order] | None = None
    async with journal_client(address) as journal:
        while True:
            orders = (await journal.ListOrders(orders_pb2.ListOrdersRequest(limit=limit))).orders
            latest = {order.order_id: order for order in reversed(orders)}
            for order_id, order in latest.items():
                if seen is not None and seen.get(order_id) != order:
                    _print(order, as_json=as_json)
            seen = latest
            await asyncio.sleep(_POLL_SECONDS)


def _print(order: orders_pb2.Order, *, as_json: bool) -> None:
    if as_json:
        print_json(order)
        return
    notes = [f"attempt {order.attempt}", f"owner {order.epoch}", *([order.reason] if order.reason else [])]
    waiting = f", waiting: {', '.join(order.outbox)}" if order.outbox else ""
    at = format_time(order.updated_at)[11:]
    state = f"{order_state_name(order.state):<12}"
    text = f"{at}  {order.order_id}  {state} {amount(order.total)}  {', '.join(notes)}{waiting}"
    console.print(text, markup=False, soft_wrap=True)
