"""Implements shop.EmailService and shop.internal.Confirmations, which both accept order confirmations."""

import structlog
from typing_extensions import override

from chassis.rpc.calls import ServicerContext
from chassis.values.fields import limit_count
from email_service.acceptance import Acceptance
from email_service.domain import MAX_ID_LENGTH
from shop import email_pb2, email_pb2_grpc, empty_pb2
from shop_internal import confirmations_pb2, confirmations_pb2_grpc

log = structlog.get_logger()

_MAX_CONFIRMATIONS = 100


class EmailService(email_pb2_grpc.EmailServiceServicer):
    def __init__(self, acceptance: Acceptance) -> None:
        self._acceptance = acceptance

    @override
    async def SendOrderConfirmation(
        self, request: email_pb2.SendOrderConfirmationRequest, context: ServicerContext
    ) -> empty_pb2.Empty:
        for error in (await self._acceptance.accept([request])).values():
            raise error
        return empty_pb2.Empty()


class Confirmations(confirmations_pb2_grpc.ConfirmationsServicer):
    """Accepts confirmations in batches. Each batch takes only one call and one flush to disk."""

    def __init__(self, acceptance: Acceptance) -> None:
        self._acceptance = acceptance

    @override
    async def AcceptConfirmations(
        self, request: confirmations_pb2.AcceptConfirmationsRequest, _context: ServicerContext
    ) -> confirmations_pb2.AcceptConfirmationsResponse:
        limit_count(request.confirmations, "confirmations", max_count=_MAX_CONFIRMATIONS)
        refused = await self._acceptance.accept(request.confirmations)
        for index, error in refused.items():
            # The response contains only the reason, so log which field is invalid.
            order_id = request.confirmations[index].order.order_id[:MAX_ID_LENGTH]
            log.warning("confirmation refused", order_id=order_id, reason=error.reason, error=error.message)
        return confirmations_pb2.AcceptConfirmationsResponse(
            refused=[
                confirmations_pb2.RefusedConfirmation(index=index, reason=error.reason)
                for index, error in sorted(refused.items())
            ]
        )
