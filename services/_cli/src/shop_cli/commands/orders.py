"""`shop orders`: what operators see of the orders that checkout keeps."""

from datetime import UTC, datetime
from typing import Annotated

import typer
from google.protobuf.timestamp_pb2 import Timestamp

from shop_cli.clients import Address, journal_at, synchronous
from shop_cli.output import Json, amount, console, print_json, print_table
from shop_internal import orders_pb2

orders = typer.Typer(no_args_is_help=True, help="Watch orders: which there are, which are stuck, how each went.")

_PREFIX = "ORDER_STATE_"
State = Annotated[list[str] | None, typer.Option(help="Only this state, such as SHIPPED; may be repeated.")]


@orders.command("list")
@synchronous
async def list_orders(
    *,
    stuck: Annotated[bool, typer.Option("--stuck", help="Only orders that need somebody, oldest first.")] = False,
    state: State = None,
    limit: Annotated[int, typer.Option(min=1, max=1000)] = 50,
    as_json: Json = False,
    address: Address = None,
) -> None:
    """List orders, newest first."""
    request = orders_pb2.ListOrdersRequest(states=[_state(each) for each in state or ()], stuck=stuck, limit=limit)
    async with journal_at(address) as journal:
        found = (await journal.ListOrders(request)).orders
    if as_json:
        print_json(*found)
        return
    columns = ["Order", "State", "User", "Total ", "Attempt ", "Failures ", "Created", "Reason", "To do"]
    print_table(columns, (_row(order) for order in found))
    console.print(f"\n{len(found)} orders" + (" stuck" if stuck else ""))


@orders.command("show")
@synchronous
async def show_order(order_id: str, *, as_json: Json = False, address: Address = None) -> None:
    """Show one order and its history, step by step."""
    async with journal_at(address) as journal:
        found = await journal.GetOrder(orders_pb2.GetOrderRequest(order_id=order_id))
    if as_json:
        print_json(found)
        return
    order = found.order
    console.print(
        f"Order {order.order_id}: {_name(order.state)}{', stuck' if order.stuck else ''}\n"
        f"user {order.user_id}, total {amount(order.total)}, tracking id {order.tracking_id or 'none yet'}\n",
        markup=False,
    )
    print_table(["At", "Step", "State", "Attempt ", "Epoch ", "Detail"], (_event_row(each) for each in found.history))


def _state(name: str) -> orders_pb2.OrderState.ValueType:
    known = orders_pb2.OrderState.keys()
    if (full := _PREFIX + name.upper()) not in known:
        names = ", ".join(each.removeprefix(_PREFIX) for each in known[1:])
        raise typer.BadParameter(f"{name} is no state: there are {names}", param_hint="--state")
    return orders_pb2.OrderState.Value(full)


def _name(state: orders_pb2.OrderState.ValueType) -> str:
    return orders_pb2.OrderState.Name(state).removeprefix(_PREFIX)


def _row(order: orders_pb2.Order) -> list[str]:
    return [
        order.order_id,
        _name(order.state) + (" (stuck)" if order.stuck else ""),
        order.user_id,
        amount(order.total),
        str(order.attempt),
        str(order.failures),
        _time(order.created_at),
        order.reason,
        ", ".join(order.outbox),
    ]


def _event_row(event: orders_pb2.OrderEvent) -> list[str]:
    return [_time(event.at), event.step, _name(event.state), str(event.attempt), str(event.epoch), event.detail]


def _time(at: Timestamp) -> str:
    seconds = at.ToNanoseconds() / 1e9
    return datetime.fromtimestamp(seconds, UTC).isoformat(sep=" ", timespec="milliseconds").removesuffix("+00:00")
