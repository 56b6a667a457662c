"""Sends order confirmations through the email service."""

import asyncio
from collections.abc import Awaitable, Sequence

from chassis.telemetry.instruments import Telemetry
from checkout_service.peers.batches import Batches, Reply
from checkout_service.peers.wire import order_to_wire
from checkout_service.ports import Entry
from shop import email_pb2
from shop.email_pb2_grpc import EmailServiceStub
from shop_internal import confirmations_pb2
from shop_internal.confirmations_pb2_grpc import ConfirmationsStub

# How long a confirmation waits for others to join its batch. A longer wait makes larger batches, which delay orders.
DELAY_SECONDS = 0.05


class EmailClient:
    """Sends many orders' confirmations in one internal call.

    If the email service doesn't offer the internal API, each confirmation is sent in its own public call. Confirmation
    ids derive from order ids, so repeating a call doesn't send a second email.
    """

    def __init__(self, emails: EmailServiceStub, confirmations: ConfirmationsStub, telemetry: Telemetry) -> None:
        self._confirmations = confirmations
        alone = emails.SendOrderConfirmation
        self._batches = Batches("confirmations", self._accept, alone, telemetry, delay_seconds=DELAY_SECONDS)

    def confirm(self, entry: Entry) -> asyncio.Future[None]:
        """Send a placed order's confirmation: see `ports.Sender`."""
        return self._batches.send(
            email_pb2.SendOrderConfirmationRequest(email=entry.order.email, order=order_to_wire(entry))
        )

    def _accept(self, batch: Sequence[email_pb2.SendOrderConfirmationRequest]) -> Awaitable[Reply]:
        request = confirmations_pb2.AcceptConfirmationsRequest(confirmations=batch)
        return self._confirmations.AcceptConfirmations(request)
