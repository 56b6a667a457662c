"""Encodes the order fields that have no column of their own, as versioned JSON for the column `snapshot`.

Older releases stored a shop.PlaceOrderResponse in this column, and a copy in `answer`, a column that is now unused.
"""

from operator import index
from typing import Any

import orjson

from chassis.rpc import wire
from chassis.sql.database import Row
from chassis.values.money import MAX_NANOS, Money
from chassis.values.orders import Address, OrderLine
from checkout_service.domain import Order
from shop.checkout_pb2 import PlaceOrderResponse

VERSION = 2
"""Version 1 has the same fields, but the releases that wrote it used one shipment key for all attempts of an order."""

# Every stored PlaceOrderResponse begins with this byte, the tag of its only field. JSON snapshots begin with a brace.
_FIRST_BYTE_OF_PROTOBUF = b"\x0a"


def dump(order: Order) -> bytes:
    fields = {
        "version": VERSION,
        "address": order.address,  # orjson encodes the dataclass as a JSON object
        "lines": [
            {"product_id": line.product_id, "quantity": line.quantity, "cost": _dump_money(line.cost)}
            for line in order.lines
        ],
        "shipping_cost": _dump_money(order.shipping_cost),
    }
    return orjson.dumps(fields)


def load(row: Row) -> Order:
    """Return the order in a row of `orders`. Raise ValueError if a newer release wrote the snapshot."""
    snapshot: bytes = row["snapshot"]
    if snapshot.startswith(_FIRST_BYTE_OF_PROTOBUF):
        stored = PlaceOrderResponse.FromString(snapshot).order
        address, lines = wire.address_from_wire(stored.shipping_address), wire.order_lines_from_wire(stored.items)
        shipping_cost = wire.money_from_wire(stored.shipping_cost)
    else:
        fields = orjson.loads(snapshot)
        if not 1 <= fields["version"] <= VERSION:
            raise ValueError(f"order {row['order_id']} has a snapshot of unknown version {fields['version']}")
        address, shipping_cost = Address(**fields["address"]), _load_money(**fields["shipping_cost"])
        lines = tuple(
            OrderLine(line["product_id"], line["quantity"], _load_money(**line["cost"])) for line in fields["lines"]
        )
    order = Order(row["order_id"], row["user_id"], row["email"], row["cart_etag"], address, lines, shipping_cost)
    # Raise TypeError or ValueError if a damaged value can't be sent.
    wire.address_to_wire(address)
    wire.money_to_wire(order.total)
    for line in lines:
        wire.item_to_wire(line)
    return order


def load_columns(row: Row, total: Money) -> Order:
    """Return an incomplete order from the other columns of a row whose snapshot can't be decoded."""
    nowhere = Address("", "", "", "", 0)
    return Order(row["order_id"], row["user_id"], row["email"], row["cart_etag"], nowhere, (), total)


def recorded_total(row: Row) -> Money:
    amount = row["currency_code"], row["total_units"], row["total_nanos"]
    is_money = [*map(type, amount)] == [str, int, int] and abs(row["total_nanos"]) <= MAX_NANOS
    return Money.of(*amount) if is_money else Money("XXX", 0)


def _load_money(currency_code: str, units: int, nanos: int) -> Money:
    return Money.of(currency_code, index(units), index(nanos))


def _dump_money(amount: Money) -> dict[str, Any]:
    return {"currency_code": amount.currency_code, "units": amount.units, "nanos": amount.nanos}
