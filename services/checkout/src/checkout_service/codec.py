"""Orders as messages of the contract: the journal keeps them in this form, and so does the answer."""

from collections.abc import Iterable

from chassis.errors import InvalidArgument, Unavailable
from chassis.money import Money, parse_money
from chassis.wire import money_to_wire
from checkout_service.domain import Address, Card, CartLine, Order, OrderLine, OrderRequest
from shop import address_pb2, cart_pb2, checkout_pb2, money_pb2, order_pb2, payment_pb2


class PeerBroken(Unavailable):
    """A peer's answer breaks the contract."""


def request_from_wire(request: checkout_pb2.PlaceOrderRequest) -> OrderRequest:
    """The request, unchecked."""
    return OrderRequest(
        request.user_id,
        request.user_currency,
        address_from_wire(request.address) if request.HasField("address") else None,
        request.email,
        _card_from_wire(request.credit_card) if request.HasField("credit_card") else None,
    )


def answer_to_bytes(order: Order, tracking_id: str = "") -> bytes:
    """PlaceOrderResponse. Without a tracking id it is the order's snapshot."""
    result = order_pb2.OrderResult(
        order_id=order.order_id,
        shipping_tracking_id=tracking_id,
        shipping_cost=money_to_wire(order.shipping_cost),
        shipping_address=address_to_wire(order.address),
        items=[
            order_pb2.OrderItem(
                item=cart_pb2.CartItem(product_id=line.product_id, quantity=line.quantity),
                cost=money_to_wire(line.cost),
            )
            for line in order.lines
        ],
    )
    return checkout_pb2.PlaceOrderResponse(order=result).SerializeToString()


def order_from_bytes(snapshot: bytes, *, user_id: str, email: str, cart_etag: str) -> Order:
    """The order that a snapshot holds; the rest of it comes from the journal's columns."""
    result = checkout_pb2.PlaceOrderResponse.FromString(snapshot).order
    return Order(
        result.order_id,
        user_id,
        email,
        cart_etag,
        address_from_wire(result.shipping_address),
        tuple(OrderLine(item.item.product_id, item.item.quantity, money_from_peer(item.cost)) for item in result.items),
        money_from_peer(result.shipping_cost),
    )


def money_from_peer(amount: money_pb2.Money) -> Money:
    """A peer's amount. Raises PeerBroken when it breaks the rules of Money: that is no mistake of our caller."""
    try:
        return parse_money(amount.currency_code, amount.units, amount.nanos, field="amount")
    except InvalidArgument as error:
        raise PeerBroken("a peer answered with a broken amount") from error


def address_to_wire(address: Address) -> address_pb2.Address:
    """The same fields."""
    return address_pb2.Address(
        street_address=address.street_address,
        city=address.city,
        state=address.state,
        country=address.country,
        zip_code=address.zip_code,
    )


def address_from_wire(address: address_pb2.Address) -> Address:
    """The same fields."""
    return Address(address.street_address, address.city, address.state, address.country, address.zip_code)


def lines_to_wire(lines: Iterable[CartLine | OrderLine]) -> list[cart_pb2.CartItem]:
    """Products and quantities."""
    return [cart_pb2.CartItem(product_id=line.product_id, quantity=line.quantity) for line in lines]


def card_to_wire(card: Card) -> payment_pb2.CreditCardInfo:
    """The same fields."""
    return payment_pb2.CreditCardInfo(
        credit_card_number=card.number,
        credit_card_cvv=card.cvv,
        credit_card_expiration_year=card.expiration_year,
        credit_card_expiration_month=card.expiration_month,
    )


def _card_from_wire(card: payment_pb2.CreditCardInfo) -> Card:
    return Card(
        card.credit_card_number,
        card.credit_card_cvv,
        card.credit_card_expiration_year,
        card.credit_card_expiration_month,
    )
