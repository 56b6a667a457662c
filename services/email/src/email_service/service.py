"""shop.EmailService: from the wire to the domain."""

from chassis.fields import require_email_address, require_present
from chassis.money import Money, parse_money
from chassis.serving import ServicerContext
from email_service.domain import Address, Line, Mailer, Order
from email_service.letters import Stationery
from shop import address_pb2, email_pb2, email_pb2_grpc, empty_pb2, money_pb2, order_pb2


class EmailService(email_pb2_grpc.EmailServiceServicer):
    """Writes confirmations and hands them to a mailer."""

    def __init__(self, stationery: Stationery, mailer: Mailer) -> None:
        self._stationery = stationery
        self._mailer = mailer

    async def SendOrderConfirmation(
        self, request: email_pb2.SendOrderConfirmationRequest, context: ServicerContext
    ) -> empty_pb2.Empty:
        """Confirm an order; answered once the mail is handed over."""
        recipient = require_email_address(request.email, "email")
        require_present(request.HasField("order"), "order")
        await self._mailer.send(self._stationery.confirmation(recipient, _order(request.order)))
        return empty_pb2.Empty()


def _order(wire: order_pb2.OrderResult) -> Order:
    require_present(wire.HasField("shipping_cost"), "order.shipping_cost")
    return Order(
        order_id=wire.order_id,
        tracking_id=wire.shipping_tracking_id,
        lines=[_line(item, f"order.items[{index}]") for index, item in enumerate(wire.items)],
        shipping_cost=_money(wire.shipping_cost, "order.shipping_cost"),
        address=_address(wire.shipping_address),
    )


def _line(wire: order_pb2.OrderItem, field: str) -> Line:
    require_present(wire.HasField("item"), f"{field}.item")
    require_present(wire.HasField("cost"), f"{field}.cost")
    return Line(wire.item.product_id, wire.item.quantity, _money(wire.cost, f"{field}.cost"))


def _money(wire: money_pb2.Money, field: str) -> Money:
    return parse_money(wire.currency_code, wire.units, wire.nanos, field=field)


def _address(wire: address_pb2.Address) -> Address:
    return Address(wire.street_address, wire.city, wire.state, wire.country, wire.zip_code)
