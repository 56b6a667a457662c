"""Encodes the order fields that have no column of their own as versioned JSON, for the column `snapshot`."""

from typing import Any

import orjson

from chassis.sql.database import Row
from chassis.values.addresses import Address
from chassis.values.money import Money
from checkout_service.domain import Order, OrderLine

VERSION = 2


def dump(order: Order) -> bytes:
    fields = {
        "version": VERSION,
        "address": order.address,  # orjson encodes a dataclass field by field
        "lines": [
            {"product_id": line.product_id, "quantity": line.quantity, "cost": _dump_money(line.cost)}
            for line in order.lines
        ],
        "shipping_cost": _dump_money(order.shipping_cost),
    }
    return orjson.dumps(fields)


def load(row: Row) -> Order:
    """Decode a row of the table `orders`. Raise ValueError if another release wrote it in another format version."""
    fields = orjson.loads(row["snapshot"])
    if fields["version"] != VERSION:
        raise ValueError(f"order {row['order_id']} has a snapshot of unknown version {fields['version']}")
    lines = tuple(
        OrderLine(line["product_id"], line["quantity"], _load_money(line["cost"])) for line in fields["lines"]
    )
    address, shipping_cost = Address(**fields["address"]), _load_money(fields["shipping_cost"])
    return Order(row["order_id"], row["user_id"], row["email"], row["cart_etag"], address, lines, shipping_cost)


def _dump_money(amount: Money) -> dict[str, Any]:
    return {"currency_code": amount.currency_code, "units": amount.units, "nanos": amount.nanos}


def _load_money(fields: dict[str, Any]) -> Money:
    return Money.of(fields["currency_code"], fields["units"], fields["nanos"])
