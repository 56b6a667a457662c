"""Calls the shipping service to ship orders, and converts its responses and errors to outcomes."""

from chassis.errors import DomainError, Unimplemented
from chassis.rpc.wire import address_to_wire, item_to_wire, time_to_wire
from checkout_service.commands import Fenced, Forgotten, InDoubt, KeyReused, ShipOutcome, Shipped, Unsupported
from checkout_service.domain import Order
from checkout_service.peers.errors import refused_or_in_doubt
from checkout_service.peers.internal_service import InternalService
from checkout_service.ports import Shipping
from shop import shipping_pb2
from shop.shipping_pb2_grpc import ShippingServiceStub
from shop_internal import shipment_manifest_pb2
from shop_internal.shipment_manifest_pb2_grpc import ShipmentManifestStub

SHIP_SECONDS = 3.0

# IDEMPOTENCY_KEY_REUSED means that the journal has lost an earlier order with the same key.
_OUTCOMES: dict[str, ShipOutcome] = {
    "SHIPMENT_FENCED": Fenced(existing=True),
    "SHIPMENT_FORGOTTEN": Forgotten(),
    "IDEMPOTENCY_KEY_REUSED": KeyReused(),
}


class ShippingClient(Shipping):
    """Calls the public shipping service and its internal manifest, which other implementations do not offer."""

    def __init__(self, stub: ShippingServiceStub, manifest: ShipmentManifestStub) -> None:
        self._stub = stub
        self._manifest = manifest
        self._manifest_service = InternalService("shop.internal.ShipmentManifest")

    async def ship(self, key: str, order: Order, charged_at: float, *, retry: bool) -> ShipOutcome:
        request = shipping_pb2.ShipOrderRequest(
            address=address_to_wire(order.address), items=map(item_to_wire, order.lines)
        )
        metadata = (("idempotency-key", key),)
        age = (("charged-at", f"{charged_at:.6f}"),) if charged_at else ()
        try:
            probe = shipment_manifest_pb2.ResolveShipmentRequest()
            # Another implementation may ignore keys, so a second call could ship the order twice.
            if retry and not await self._manifest_service.exists(self._manifest.ResolveOrFence, probe):
                return Unsupported()
            # Override the channel's timeout, which is meant for quotes.
            reply = await self._stub.ShipOrder(request, timeout=SHIP_SECONDS, metadata=(*metadata, *age))
        except DomainError as error:
            return _OUTCOMES.get(error.reason) or refused_or_in_doubt(error)
        return Shipped(reply.tracking_id)

    async def resolve(self, key: str, charged_at: float) -> ShipOutcome:
        request = shipment_manifest_pb2.ResolveShipmentRequest(shipment_key=key, charged_at=time_to_wire(charged_at))
        try:
            reply = await self._manifest_service.call(self._manifest.ResolveOrFence, request)
        except Unimplemented:
            return Unsupported()
        except DomainError as error:
            return _OUTCOMES.get(error.reason) or InDoubt(error.reason)
        return Shipped(reply.shipped.tracking_id) if reply.HasField("shipped") else Fenced(reply.fenced.existing)
