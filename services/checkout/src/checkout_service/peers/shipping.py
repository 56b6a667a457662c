"""The client of shipping's effects; for quotes see `quotes`."""

from collections.abc import Sequence

from typing_extensions import override

from chassis.errors import REFUSALS, DomainError
from checkout_service.domain import Address, OrderLine
from checkout_service.outcomes import InDoubt, Refused, ShipOutcome, Shipped
from checkout_service.peers.refusals import refusal_from_error
from checkout_service.peers.wire import address_to_wire, lines_to_wire
from checkout_service.ports import Shipping
from shop import shipping_pb2, shipping_pb2_grpc


class ShippingClient(Shipping):
    """Shipping by the contract."""

    def __init__(self, stub: shipping_pb2_grpc.ShippingServiceStub, timeout_seconds: float) -> None:
        self._stub = stub
        self._timeout_seconds = timeout_seconds

    @override
    async def ship(self, key: str, address: Address, lines: Sequence[OrderLine]) -> ShipOutcome:
        request = shipping_pb2.ShipOrderRequest(address=address_to_wire(address), items=lines_to_wire(lines))
        metadata = (("idempotency-key", key),)
        try:
            reply = await self._stub.ShipOrder(request, timeout=self._timeout_seconds, metadata=metadata)
        except REFUSALS as error:
            return Refused(refusal_from_error(error))
        except DomainError as error:
            return InDoubt(error.reason)
        return Shipped(reply.tracking_id)
