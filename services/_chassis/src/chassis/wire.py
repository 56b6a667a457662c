"""Amounts as messages of the contract, and back."""

from chassis.money import Money
from shop import money_pb2


def money_to_wire(amount: Money) -> money_pb2.Money:
    """The amount in units and nanos."""
    return money_pb2.Money(currency_code=amount.currency_code, units=amount.units, nanos=amount.nanos)


def money_from_wire(amount: money_pb2.Money) -> Money:
    """The amount of a message that keeps the contract's rules; `parse_money` checks one that may not."""
    return Money.of(amount.currency_code, amount.units, amount.nanos)
