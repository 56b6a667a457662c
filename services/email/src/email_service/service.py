"""shop.EmailService: maps messages to the domain."""

from chassis.fields import require_email_address, require_present
from chassis.serving import ServicerContext
from chassis.wire import parse_wire_money
from email_service.domain import Address, Line, Mailer, Order
from email_service.rendering import ConfirmationTemplates
from shop import address_pb2, email_pb2, email_pb2_grpc, empty_pb2, order_pb2


class EmailService(email_pb2_grpc.EmailServiceServicer):
    """Renders confirmations and sends them with a mailer."""

    def __init__(self, templates: ConfirmationTemplates, mailer: Mailer) -> None:
        self._templates = templates
        self._mailer = mailer

    async def SendOrderConfirmation(
        self, request: email_pb2.SendOrderConfirmationRequest, context: ServicerContext
    ) -> empty_pb2.Empty:
        """Return once the e-mail is handed over to the relay, or is on disk in the outbox."""
        recipient = require_email_address(request.email, "email")
        require_present(request.HasField("order"), "order")
        await self._mailer.send(self._templates.render(recipient, _order_from_wire(request.order)))
        return empty_pb2.Empty()


def _order_from_wire(message: order_pb2.OrderResult) -> Order:
    require_present(message.HasField("shipping_cost"), "order.shipping_cost")
    return Order(
        order_id=message.order_id,
        tracking_id=message.shipping_tracking_id,
        lines=[_line_from_wire(item, f"order.items[{index}]") for index, item in enumerate(message.items)],
        shipping_cost=parse_wire_money(message.shipping_cost, field="order.shipping_cost"),
        address=_address_from_wire(message.shipping_address),
    )


def _line_from_wire(message: order_pb2.OrderItem, field: str) -> Line:
    require_present(message.HasField("item"), f"{field}.item")
    require_present(message.HasField("cost"), f"{field}.cost")
    return Line(message.item.product_id, message.item.quantity, parse_wire_money(message.cost, field=f"{field}.cost"))


def _address_from_wire(message: address_pb2.Address) -> Address:
    return Address(message.street_address, message.city, message.state, message.country, message.zip_code)
