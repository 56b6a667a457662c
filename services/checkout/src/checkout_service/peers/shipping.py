"""The client of shipping's effects; for quotes see `quotes`."""

from collections.abc import Sequence
from functools import partial

from typing_extensions import override

from chassis.errors import REFUSALS, DomainError, Unimplemented
from checkout_service.domain import Address, OrderLine
from checkout_service.outcomes import Fenced, InDoubt, KeyReused, Refused, ShipOutcome, Shipped, Unsupported
from checkout_service.peers.errors import refusal_from_error
from checkout_service.peers.internal_service import InternalService
from checkout_service.peers.wire import address_to_wire, lines_to_wire
from checkout_service.ports import Shipping
from shop import shipping_pb2, shipping_pb2_grpc
from shop_internal import shipment_manifest_pb2, shipment_manifest_pb2_grpc


class ShippingClient(Shipping):
    """Shipping by the contract, and by the internal manifest service, which foreign implementations do not have."""

    def __init__(
        self,
        stub: shipping_pb2_grpc.ShippingServiceStub,
        manifest: shipment_manifest_pb2_grpc.ShipmentManifestStub,
        timeout_seconds: float,
    ) -> None:
        self._stub = stub
        self._manifest = manifest
        self._manifest_service = InternalService("shop.internal.ShipmentManifest")
        self._timeout_seconds = timeout_seconds

    @override
    async def ship(self, key: str, address: Address, lines: Sequence[OrderLine]) -> ShipOutcome:
        request = shipping_pb2.ShipOrderRequest(address=address_to_wire(address), items=lines_to_wire(lines))
        metadata = (("idempotency-key", key),)
        try:
            reply = await self._stub.ShipOrder(request, timeout=self._timeout_seconds, metadata=metadata)
        except DomainError as error:
            return _outcome_of_error(error)
        return Shipped(reply.tracking_id)

    @override
    async def resolve(self, key: str) -> ShipOutcome:
        request = shipment_manifest_pb2.ResolveShipmentRequest(shipment_key=key)
        try:
            method = partial(self._manifest.ResolveOrFence, timeout=self._timeout_seconds)
            reply = await self._manifest_service.call(method, request)
        except Unimplemented:
            return Unsupported()
        except DomainError as error:
            return InDoubt(error.reason)
        match reply.WhichOneof("outcome"):
            case "shipped":
                return Shipped(reply.shipped.tracking_id)
            case "fenced":
                return Fenced(reply.fenced.existing)
            case _:
                return InDoubt("UNKNOWN_OUTCOME")


def _outcome_of_error(error: DomainError) -> ShipOutcome:
    if error.reason == "SHIPMENT_FENCED":
        return Fenced(existing=True)
    # Shipped with other lines or another address: a lost part of the journal had another order under this key.
    if error.reason == "IDEMPOTENCY_KEY_REUSED":
        return KeyReused()
    # A proxy or a rollout answers UNIMPLEMENTED for a while: it is no decision of shipping.
    if isinstance(error, REFUSALS) and not isinstance(error, Unimplemented):
        return Refused(refusal_from_error(error))
    return InDoubt(error.reason)
