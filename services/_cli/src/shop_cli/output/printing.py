import json
import os
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text
from typing_extensions import override

from chassis.rpc.wire import money_from_wire
from chassis.values.money import format_plainly, total
from shop import money_pb2, order_pb2
from shop_cli.output.visible import visible

# Don't wrap rows if the output is piped, because `grep` and `awk` expect each row on one line.
_UNLIMITED_WIDTH = 1_000
_HAS_WIDTH = (sys.stdout and sys.stdout.isatty()) or "COLUMNS" in os.environ  # there is no stdout after `>&-`
_MIN_VALUE_WIDTH = 20
_COLUMN_GAP = 2


class SafeConsole(Console):
    """Escapes all text with `visible`, because customers and services may send control characters."""

    @override
    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)


T = TypeVar("T", bound=Message | Mapping[str, object])
Columns = Mapping[str, Callable[[T], str]]
"""Maps column names to functions that format an item. A column whose name ends with a space is right-aligned."""

console = SafeConsole(highlight=False, width=None if _HAS_WIDTH else _UNLIMITED_WIDTH)


def counted(count: int, singular: str, plural: str = "") -> str:
    """Return a count with its noun, such as `1 order` or `2 orders`."""
    return f"{count} {singular if count == 1 else plural or f'{singular}s'}"


def print_json(*objects: Message | Mapping[str, object]) -> None:
    """Print one JSON object per line. Messages keep their protobuf field names, and 64-bit integers become strings."""
    for found in objects:
        fields = found
        if isinstance(found, Message):
            fields = MessageToDict(found, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
        console.out(json.dumps(fields, ensure_ascii=False))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows as a `table`, omitting empty columns and wrapping text between words.

    If the terminal is too narrow for the table, print each row as a block of names and values instead.
    """
    found = [[visible(cell) for cell in row] for row in rows]  # escape before measuring: escaped text is wider
    shown = [index for index in range(len(columns)) if not found or any(row[index] for row in found)]
    names, found = [columns[index] for index in shown], [[row[index] for index in shown] for row in found]
    if _fits(names, found):
        console.print(table(names, found))
        return
    for number, row in enumerate(found):
        if number:
            console.print()
        print_fields(zip((name.strip() for name in names), row, strict=True))


def print_list(found: Sequence[T], columns: Columns[T], *, as_json: bool) -> None:
    """Print items as JSON (see `print_json`) or as a table."""
    if as_json:
        print_json(*found)
    else:
        print_table([*columns], [[text(item) for text in columns.values()] for item in found])


def print_one(found: T, columns: Columns[T]) -> None:
    """Print an item's non-empty columns, one per line."""
    print_fields((name.strip().lower(), text(found)) for name, text in columns.items())


def print_fields(fields: Iterable[tuple[str, str]]) -> None:
    """Print the non-empty fields, one name and value per line, wrapping long values between words."""
    shown = [(name, value) for name, value in fields if value]
    indent = max((len(name) for name, _ in shown), default=0) + 2
    wrapper = textwrap.TextWrapper(
        width=max(console.width - indent, _MIN_VALUE_WIDTH), break_long_words=False, break_on_hyphens=False
    )
    for name, value in shown:
        lines = f"\n{' ' * indent}".join(wrapper.wrap(value))
        console.out(f"{name:<{indent}}{lines}")


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Return a table that shows Rich markup literally. A column whose name ends with a space is right-aligned."""
    result = Table(header_style="bold", pad_edge=False, box=None)
    for index, column in enumerate(columns):
        is_number = column.endswith(" ")
        justify: JustifyMethod = "right" if is_number else "left"
        is_solid = is_number or not any(" " in row[index] for row in rows)
        result.add_column(column.strip(), justify=justify, overflow="fold", no_wrap=is_solid)
    for row in rows:
        result.add_row(*map(Text, row))
    return result


def _fits(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Return whether the terminal is wide enough to show the table without splitting words or numbers."""
    widths = []
    for name, *cells in zip(columns, *rows, strict=True):
        words = cells if name.endswith(" ") else " ".join(cells).split(" ")
        widths.append(max(map(cell_len, [name.strip(), *words])))
    return sum(widths) + _COLUMN_GAP * (len(widths) - 1) <= console.width


def amount(money: money_pb2.Money) -> str:
    return format_plainly(money_from_wire(money))


def state_name(states: Any, state: int) -> str:
    """Return a state's name without its enum's prefix, such as `SHIPPED` for `ORDER_STATE_SHIPPED`."""
    return str(states.Name(state)).removeprefix(str(states.Name(0)).removesuffix("UNSPECIFIED"))


def format_time(at: Timestamp) -> str:
    """Return a time in UTC, such as `2026-11-22 10:30:00.000`."""
    return at.ToDatetime().isoformat(sep=" ", timespec="milliseconds")


def print_order(order: order_pb2.OrderResult) -> None:
    print_lines(order)
    print_fields([("order id", order.order_id), ("tracking id", order.shipping_tracking_id)])


def print_lines(order: order_pb2.OrderResult) -> None:
    shipping = money_from_wire(order.shipping_cost)
    lines = [(line.item.product_id, str(line.item.quantity), amount(line.cost)) for line in order.items]
    paid = total(shipping.currency_code, [shipping, *(money_from_wire(line.cost) for line in order.items)])
    rows = [*lines, ("shipping", "", format_plainly(shipping)), ("total", "", format_plainly(paid))]
    print_table(["Item", "Quantity ", "Cost "], rows)
