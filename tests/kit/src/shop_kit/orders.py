"""Orders of checkout that no journal has yet."""

from dataclasses import replace
from typing import Any

from chassis.values.money import Money
from chassis.values.orders import Address, OrderLine
from checkout_service.domain import Order, order_id_of
from checkout_service.ports import Entry

MUG = OrderLine("mug", 2, Money.of("EUR", 17, 980_000_000))


def new_order(scope: str = "scope", fingerprint: str = "fingerprint", **changed: Any) -> Entry:
    """Make an order with the given fields changed."""
    order = Order(
        order_id_of(scope),
        "user",
        "ann@mail.example",
        f"etag of {scope}",
        Address("Main 1", "Berlin", "BE", "Germany", 10115),
        (MUG,),
        Money.of("EUR", 4, 500_000_000),
    )
    return Entry(scope, fingerprint, replace(order, **changed))
