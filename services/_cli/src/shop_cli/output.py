"""What commands print: tables for people, JSON for programs."""

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Annotated

import typer
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from rich.console import Console
from rich.table import Table

from chassis.money import Money, total
from chassis.wire import money_from_wire
from shop import money_pb2, order_pb2

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]

# A pipe has no width: rows stay whole for whoever searches them.
console = Console(highlight=False, width=None if sys.stdout.isatty() else 200)


def print_json(*messages: Message) -> None:
    """One JSON object a line, with the contract's field names; amounts' units are strings, as in all protobuf JSON."""
    for message in messages:
        fields = MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
        console.out(json.dumps(fields, ensure_ascii=False), highlight=False)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table; columns whose names end with a space are aligned to the right."""
    console.print(table(columns, rows))


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, caption: str | None = None) -> Table:
    """A table of texts, none of them read as markup; columns whose names end with a space are aligned to the right."""
    made = Table(
        caption=caption,
        caption_justify="left",
        header_style="bold",
        pad_edge=False,
        box=None,
    )
    for column in columns:
        made.add_column(column.strip(), justify="right" if column.endswith(" ") else "left", overflow="fold")
    for row in rows:
        made.add_row(*(_plain(cell) for cell in row))
    return made


def _plain(text: str) -> str:
    return text.replace("[", r"\[")


def amount(money: money_pb2.Money) -> str:
    """An amount with its currency, such as `12.50 EUR`."""
    return str(money_from_wire(money))


def print_order(order: order_pb2.OrderResult) -> None:
    """An order's ids, its lines, its shipping and its total."""
    currency = order.shipping_cost.currency_code
    costs = [Money.of(currency, cost.units, cost.nanos) for cost in (line.cost for line in order.items)]
    shipping = Money.of(currency, order.shipping_cost.units, order.shipping_cost.nanos)
    lines = [(line.item.product_id, str(line.item.quantity), amount(line.cost)) for line in order.items]
    rows = [*lines, ("shipping", "", str(shipping)), ("total", "", str(total(currency, [*costs, shipping])))]
    print_table(["Item", "Quantity ", "Cost "], rows)
    console.print(
        f"order id     {order.order_id}\ntracking id  {order.shipping_tracking_id}", markup=False, soft_wrap=True
    )
