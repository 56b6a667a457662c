"""Implements shop.EmailService and shop.internal.Confirmations, which both validate, render and spool confirmations."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import structlog

from chassis.errors import REFUSALS, DomainError, FailedPrecondition
from chassis.rpc.calls import ServicerContext
from chassis.rpc.wire import address_from_wire, parse_wire_money
from chassis.sql.database import is_rejected
from chassis.values.email_addresses import require_email_address
from chassis.values.fields import limit_count, require_present
from chassis.values.orders import OrderLine
from email_service.domain import MAX_ID_LENGTH, MailNotSent, Order, RecipientRefused, digests_of
from email_service.messages import MessageState, NewMessage, SpoolUnavailable
from email_service.mime import Sender, to_mime
from email_service.product_names import ProductNames
from email_service.rendering import ConfirmationTemplates
from email_service.spool.sql import Spool
from shop import email_pb2, email_pb2_grpc, empty_pb2, order_pb2
from shop_internal import confirmations_pb2 as pb2
from shop_internal import confirmations_pb2_grpc as pb2_grpc

log = structlog.get_logger()

_MAX_CONFIRMATIONS = 100


@dataclass(frozen=True)
class EmailService(email_pb2_grpc.EmailServiceServicer, pb2_grpc.ConfirmationsServicer):
    """Accepts confirmations one by one or in batches. A batch takes only one call and one flush to disk."""

    _templates: ConfirmationTemplates
    _names: ProductNames | None
    _spool: Spool
    _sender: Sender

    async def SendOrderConfirmation(
        self, request: email_pb2.SendOrderConfirmationRequest, context: ServicerContext
    ) -> empty_pb2.Empty:
        for error in (await self._accept([request])).values():
            raise error
        return empty_pb2.Empty()

    async def AcceptConfirmations(
        self, request: pb2.AcceptConfirmationsRequest, _context: ServicerContext
    ) -> pb2.AcceptConfirmationsResponse:
        limit_count(request.confirmations, "confirmations", max_count=_MAX_CONFIRMATIONS)
        response = pb2.AcceptConfirmationsResponse()
        for index, error in sorted((await self._accept(request.confirmations)).items()):
            # The response contains only the reason, so log which field is invalid.
            order_id = request.confirmations[index].order.order_id[:MAX_ID_LENGTH]
            log.warning("confirmation refused", order_id=order_id, reason=error.reason, error=error.message)
            response.refused.add(index=index, reason=error.reason)
        return response

    async def _accept(self, requests: Sequence[email_pb2.SendOrderConfirmationRequest]) -> Mapping[int, DomainError]:
        """Store confirmations with a single flush to disk. Return the errors of refused confirmations, by index.

        Retrying a refused confirmation won't help. Raise MailNotSent if the spool can't be written. If the database
        rejects a batch of several confirmations, store none of them and raise FailedPrecondition.
        """
        names = await self._names.current() if self._names else {}
        messages: dict[int, NewMessage] = {}
        refused: dict[int, DomainError] = {}
        for index, request in enumerate(requests):
            try:
                messages[index] = self._compose(request, names)
            except REFUSALS as error:
                refused[index] = error
        return refused | await self._store(messages) if messages else refused

    def _compose(self, request: email_pb2.SendOrderConfirmationRequest, names: Mapping[str, str]) -> NewMessage:
        recipient = require_email_address(request.email, "email")
        require_present(request.HasField("order"), "order")
        order = _order_from_wire(request.order)
        confirmation = self._templates.render(recipient, order, names)
        content = to_mime(confirmation, self._sender, datetime.now(UTC))
        return NewMessage(confirmation.message_id, recipient, content, digests_of(recipient, order, content))

    async def _store(self, messages: Mapping[int, NewMessage]) -> dict[int, DomainError]:
        try:
            states = await self._spool.add(list(messages.values()))
        except SpoolUnavailable as error:
            if len(messages) > 1 and is_rejected(error):
                # A single confirmation may be to blame. This error makes checkout send each confirmation separately.
                raise FailedPrecondition("the spool rejected the batch", reason=MailNotSent.default_reason) from error
            raise MailNotSent("the spool can't be written") from error
        return {
            index: RecipientRefused("the mail relay has refused this confirmation")
            for index, message in messages.items()
            if states[message.message_id] is MessageState.REFUSED
        }


def _order_from_wire(message: order_pb2.OrderResult) -> Order:
    """Convert the order in a request. Raise InvalidArgument, naming the field's path, if a field is invalid."""
    require_present(message.HasField("shipping_cost"), "order.shipping_cost")
    return Order(
        order_id=message.order_id,
        tracking_id=message.shipping_tracking_id,
        lines=[_line_from_wire(item, f"order.items[{index}]") for index, item in enumerate(message.items)],
        shipping_cost=parse_wire_money(message.shipping_cost, field="order.shipping_cost"),
        address=address_from_wire(message.shipping_address),
    )


def _line_from_wire(message: order_pb2.OrderItem, field: str) -> OrderLine:
    require_present(message.HasField("item"), f"{field}.item")
    require_present(message.HasField("cost"), f"{field}.cost")
    cost = parse_wire_money(message.cost, field=f"{field}.cost")
    return OrderLine(message.item.product_id, message.item.quantity, cost)
