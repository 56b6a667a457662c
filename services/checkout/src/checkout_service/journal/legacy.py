"""Reads snapshots of releases before version 1 of `snapshots`: the bytes of a shop.PlaceOrderResponse."""

from chassis.rpc.wire import money_from_wire
from chassis.values.money import Money
from checkout_service.domain import Address, OrderLine
from shop.checkout_pb2 import PlaceOrderResponse

# The tag of PlaceOrderResponse.order, its only field; a snapshot in JSON begins with a brace.
_FIRST_BYTE = b"\x0a"


def is_protobuf(snapshot: bytes) -> bool:
    """Return whether an older release wrote the snapshot."""
    return snapshot.startswith(_FIRST_BYTE)


def load(snapshot: bytes) -> tuple[Address, tuple[OrderLine, ...], Money]:
    """Return address, lines and shipping cost."""
    order = PlaceOrderResponse.FromString(snapshot).order
    address = order.shipping_address
    return (
        Address(address.street_address, address.city, address.state, address.country, address.zip_code),
        tuple(OrderLine(line.item.product_id, line.item.quantity, money_from_wire(line.cost)) for line in order.items),
        money_from_wire(order.shipping_cost),
    )
