import asyncio
from typing import Annotated

import typer

from shop_cli.clients import journal_client
from shop_cli.commands.options import InternalAddress, Json, OrderId, parse_state
from shop_cli.output.printing import (
    Columns,
    amount,
    console,
    counted,
    format_time,
    print_json,
    print_lines,
    print_list,
    print_one,
    state_name,
)
from shop_internal import orders_pb2

orders = typer.Typer(no_args_is_help=True, help="List, watch, show and settle orders, requeue dead letters.")

_POLL_SECONDS = 0.5

Stuck = Annotated[bool, typer.Option("--stuck", help="Only orders that need operator attention, oldest first.")]
State = Annotated[list[str] | None, typer.Option(help="Only orders in this state, such as SHIPPED. Repeatable.")]
Watched = Annotated[int, typer.Option(min=1, max=1000, help="Number of latest orders to watch.")]


@orders.command("list")
async def list_orders(
    *,
    stuck: Stuck = False,
    state: State = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Maximum number of orders.")] = 50,
    as_json: Json = False,
    address: InternalAddress = None,
) -> None:
    """List orders, newest first."""
    states = [parse_state(orders_pb2.OrderState, name) for name in state or ()]
    request = orders_pb2.ListOrdersRequest(states=states, stuck=stuck, limit=limit)
    async with journal_client(address) as journal:
        found = (await journal.ListOrders(request)).orders
    print_list(found, _COLUMNS, as_json=as_json)
    if not as_json:
        console.print(f"\n{counted(len(found), 'order')}")


@orders.command("show")
async def show_order(order_id: OrderId, *, as_json: Json = False, address: InternalAddress = None) -> None:
    """Show an order with its lines and its history, step by step."""
    async with journal_client(address) as journal:
        found = await journal.GetOrder(orders_pb2.GetOrderRequest(order_id=order_id))
    if as_json:
        print_json(found)
        return
    print_one(found.order, _FIELDS)
    if found.HasField("result"):
        console.print()
        print_lines(found.result)
    console.print()
    print_list(found.history, _EVENT_COLUMNS, as_json=False)


@orders.command("requeue")
async def requeue_notifications(order_id: OrderId, *, address: InternalAddress = None) -> None:
    """Resend an order's dead letters. These are notifications that were refused or failed too often."""
    async with journal_client(address) as journal:
        request = orders_pb2.RequeueNotificationsRequest(order_id=order_id)
        requeued = (await journal.RequeueNotifications(request)).requeued
    console.out(f"Requeued: {', '.join(requeued)}" if requeued else "The order has no dead letters")


@orders.command("settle")
async def settle_order(
    order_id: OrderId,
    *,
    refunded: Annotated[str | None, typer.Option(metavar="REASON", help="Refunded; a charge is released.")] = None,
    shipped: Annotated[str | None, typer.Option(metavar="TRACKING_ID", help="Charged and shipped.")] = None,
    dismissed: Annotated[str | None, typer.Option(metavar="REASON", help="Nothing has to be done.")] = None,
    by: Annotated[str, typer.Option(envvar="USER", help="Who settles it.")],
    address: InternalAddress = None,
) -> None:
    """Close an order that can't complete on its own. Payment and shipping records must not contradict the outcome."""
    outcomes = {"refunded": refunded, "shipped": shipped, "dismissed": dismissed}
    given = {name: text for name, text in outcomes.items() if text is not None}
    if len(given) != 1:
        raise typer.BadParameter("give exactly one of --refunded, --shipped and --dismissed")
    async with journal_client(address) as journal:
        settled = (await journal.SettleOrder(orders_pb2.SettleOrderRequest(order_id=order_id, by=by, **given))).order
    print_one(settled, _FIELDS)


@orders.command("watch")
async def watch_orders(*, limit: Watched = 100, as_json: Json = False, address: InternalAddress = None) -> None:
    """Print a line for each new or changed order, until Ctrl-C."""
    seen: dict[str, orders_pb2.Order] | None = None
    async with journal_client(address) as journal:
        while True:
            found = (await journal.ListOrders(orders_pb2.ListOrdersRequest(limit=limit))).orders
            latest = {order.order_id: order for order in reversed(found)}
            for order_id, order in latest.items():
                if seen is not None and seen.get(order_id) != order:
                    _print_change(order, as_json=as_json)
            seen = latest
            await asyncio.sleep(_POLL_SECONDS)


def _print_change(order: orders_pb2.Order, *, as_json: bool) -> None:
    if as_json:
        print_json(order)
        return
    notes = [f"charge key ...:{order.attempt}", f"epoch {order.epoch}", *([order.reason] if order.reason else [])]
    waiting = f", waiting: {', '.join(order.outbox)}" if order.outbox else ""
    state = f"{state_name(orders_pb2.OrderState, order.state):<12}"
    text = f"{order.order_id}  {state} {amount(order.total)}  {', '.join(notes)}{waiting}"
    console.out(f"{format_time(order.updated_at)[11:]}  {text}")


_COLUMNS: Columns[orders_pb2.Order] = {
    "Order": lambda order: order.order_id,
    "State": lambda order: state_name(orders_pb2.OrderState, order.state) + (" (stuck)" if order.stuck else ""),
    "User": lambda order: order.user_id,
    "Total ": lambda order: amount(order.total),
    "Charge key ": lambda order: f"...:{order.attempt}",
    "Failures ": lambda order: str(order.failures or ""),
    "Created": lambda order: format_time(order.created_at),
    "Reason": lambda order: order.reason,
    "Outbox": lambda order: ", ".join(order.outbox),
    "Dead letters": lambda order: ", ".join(order.dead_letters),
}


_FIELDS: Columns[orders_pb2.Order] = {
    **_COLUMNS,
    "Tracking id": lambda order: order.tracking_id,
    "Unreadable": lambda order: order.unreadable,
}

_EVENT_COLUMNS: Columns[orders_pb2.OrderEvent] = {
    "At": lambda event: format_time(event.at),
    "Step": lambda event: event.step,
    "State": lambda event: state_name(orders_pb2.OrderState, event.state),
    "Charge key ": lambda event: f"...:{event.attempt}",
    "Epoch ": lambda event: str(event.epoch),
    "Detail": lambda event: event.detail,
}
