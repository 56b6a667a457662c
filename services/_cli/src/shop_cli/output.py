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

from chassis.money import Money
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


def table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, title: str | None = None, caption: str | None = None
) -> Table:
    """A table of texts, none of them read as markup; columns whose names end with a space are aligned to the right."""
    made = Table(
        title=title,
        title_justify="left",
        title_style="bold",
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
    return str(Money.of(money.currency_code, money.units, money.nanos))


def order_table(order: order_pb2.OrderResult) -> Table:
    """An order's lines, its shipping and its total."""
    currency = order.shipping_cost.currency_code
    costs = [line.cost for line in order.items]
    total = sum((Money.of(currency, cost.units, cost.nanos).total_nanos for cost in [*costs, order.shipping_cost]), 0)
    lines = [(line.item.product_id, str(line.item.quantity), amount(line.cost)) for line in order.items]
    shipping = ("shipping", "", amount(order.shipping_cost))
    title = f"Order {order.order_id}, tracking id {order.shipping_tracking_id}"
    return table(
        ["Item", "Quantity ", "Cost "], [*lines, shipping, ("total", "", str(Money(currency, total)))], title=title
    )
