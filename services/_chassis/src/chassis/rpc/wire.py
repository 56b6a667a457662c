"""Conversions between protobuf messages and amounts, items, cards, addresses and times."""

from collections.abc import Iterable

from google.protobuf.timestamp_pb2 import Timestamp

from chassis.values.fields import require_between
from chassis.values.money import MAX_NANOS, Money, parse_money
from chassis.values.orders import Address, Card, Item, OrderLine
from chassis.values.paging import MAX_SECONDS
from shop import address_pb2, cart_pb2, money_pb2, order_pb2, payment_pb2


def money_to_wire(amount: Money) -> money_pb2.Money:
    return money_pb2.Money(currency_code=amount.currency_code, units=amount.units, nanos=amount.nanos)


def money_from_wire(message: money_pb2.Money) -> Money:
    """Convert an amount from a trusted source. For an amount in a request, use `parse_wire_money`."""
    return Money.of(message.currency_code, message.units, message.nanos)


def parse_wire_money(message: money_pb2.Money, *, field: str) -> Money:
    """Parse an amount in a request. If it is invalid, raise InvalidArgument with a path such as `<field>.nanos`."""
    return parse_money(message.currency_code, message.units, message.nanos, field=field)


def is_price(message: money_pb2.Money, currency_code: str) -> bool:
    """Return whether the amount is valid, not negative and in the given currency."""
    return message.currency_code == currency_code and message.units >= 0 and 0 <= message.nanos <= MAX_NANOS


def item_to_wire(line: Item | OrderLine) -> cart_pb2.CartItem:
    return cart_pb2.CartItem(product_id=line.product_id, quantity=line.quantity)


def items_from_wire(items: Iterable[cart_pb2.CartItem]) -> tuple[Item, ...]:
    return tuple(Item(item.product_id, item.quantity) for item in items)


def order_lines_from_wire(lines: Iterable[order_pb2.OrderItem]) -> tuple[OrderLine, ...]:
    return tuple(OrderLine(line.item.product_id, line.item.quantity, money_from_wire(line.cost)) for line in lines)


def card_from_wire(card: payment_pb2.CreditCardInfo) -> Card:
    return Card(
        card.credit_card_number,
        card.credit_card_cvv,
        card.credit_card_expiration_year,
        card.credit_card_expiration_month,
    )


def card_to_wire(card: Card) -> payment_pb2.CreditCardInfo:
    return payment_pb2.CreditCardInfo(
        credit_card_number=card.number,
        credit_card_cvv=card.cvv,
        credit_card_expiration_year=card.year,
        credit_card_expiration_month=card.month,
    )


def address_from_wire(message: address_pb2.Address) -> Address:
    return Address(message.street_address, message.city, message.state, message.country, message.zip_code)


def address_to_wire(address: Address) -> address_pb2.Address:
    return address_pb2.Address(
        street_address=address.street_address,
        city=address.city,
        state=address.state,
        country=address.country,
        zip_code=address.zip_code,
    )


def time_to_wire(seconds: float) -> Timestamp:
    """Convert seconds since 1970 to a timestamp, rounded to microseconds."""
    timestamp = Timestamp()
    timestamp.FromMicroseconds(round(seconds * 1_000_000))
    return timestamp


def parse_wire_time(message: Timestamp, *, field: str) -> float:
    """Convert a time in a request to seconds since 1970. Raise InvalidArgument if databases can't store the time."""
    require_between(message.seconds, f"{field}.seconds", 0, MAX_SECONDS)
    require_between(message.nanos, f"{field}.nanos", 0, 999_999_999)
    return message.ToNanoseconds() / 1e9
