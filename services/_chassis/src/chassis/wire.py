"""Mappers between amounts and Money messages."""

from chassis.money import Money, parse_money
from shop import money_pb2


def money_to_wire(amount: Money) -> money_pb2.Money:
    return money_pb2.Money(currency_code=amount.currency_code, units=amount.units, nanos=amount.nanos)


def money_from_wire(message: money_pb2.Money) -> Money:
    """Return the amount of a message from a trusted source; `parse_wire_money` validates one from a request."""
    return Money.of(message.currency_code, message.units, message.nanos)


def parse_wire_money(message: money_pb2.Money, *, field: str) -> Money:
    """Return the amount of a message in a request. Raise InvalidArgument for the part of `field` that is invalid."""
    return parse_money(message.currency_code, message.units, message.nanos, field=field)
