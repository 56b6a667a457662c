"""Print messages as JSON, and tables, amounts and orders as text."""

import json
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from rich.console import Console
from rich.table import Table

from chassis.money import Money, total
from chassis.wire import money_from_wire
from shop import money_pb2, order_pb2

# A pipe has no width: wide enough that rows are not wrapped for `grep` and `awk`.
console = Console(highlight=False, width=None if sys.stdout.isatty() else 200)


def print_json(*messages: Message) -> None:
    """Print one JSON object per line, with the contract's field names; 64-bit integers are strings (protobuf JSON)."""
    for message in messages:
        fields = MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
        console.out(json.dumps(fields, ensure_ascii=False), highlight=False)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table made by `table`."""
    console.print(table(columns, rows))


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, caption: str | None = None) -> Table:
    """Return a table of plain text, without markup. A column whose name ends with a space is aligned right."""
    result = Table(
        caption=caption,
        caption_justify="left",
        header_style="bold",
        pad_edge=False,
        box=None,
    )
    for column in columns:
        result.add_column(column.strip(), justify="right" if column.endswith(" ") else "left", overflow="fold")
    for row in rows:
        result.add_row(*(_without_markup(cell) for cell in row))
    return result


def _without_markup(text: str) -> str:
    return text.replace("[", r"\[")


def amount(money: money_pb2.Money) -> str:
    """Return an amount with its currency, such as `12.50 EUR`."""
    return str(money_from_wire(money))


def format_time(at: Timestamp) -> str:
    """Return a time in UTC, such as `2026-11-22 10:30:00.000`."""
    seconds = at.ToNanoseconds() / 1e9
    return datetime.fromtimestamp(seconds, UTC).isoformat(sep=" ", timespec="milliseconds").removesuffix("+00:00")


def print_order(order: order_pb2.OrderResult) -> None:
    """Print an order's lines, shipping cost, total and ids."""
    currency = order.shipping_cost.currency_code
    costs = [Money.of(currency, cost.units, cost.nanos) for cost in (line.cost for line in order.items)]
    shipping = Money.of(currency, order.shipping_cost.units, order.shipping_cost.nanos)
    lines = [(line.item.product_id, str(line.item.quantity), amount(line.cost)) for line in order.items]
    rows = [*lines, ("shipping", "", str(shipping)), ("total", "", str(total(currency, [*costs, shipping])))]
    print_table(["Item", "Quantity ", "Cost "], rows)
    console.print(
        f"order id     {order.order_id}\ntracking id  {order.shipping_tracking_id}", markup=False, soft_wrap=True
    )
