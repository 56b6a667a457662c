"""shop.ShippingService and shop.internal.ShipmentManifest: map messages to the domain and back."""

import uuid
from collections.abc import Iterable
from dataclasses import dataclass

import structlog
from typing_extensions import override

from chassis.failpoints import Failpoints
from chassis.rpc.calls import metadata_value
from chassis.rpc.serving import ServicerContext
from chassis.rpc.wire import money_to_wire, parse_wire_time, time_to_wire
from chassis.values import paging
from chassis.values.datafile import DataFile
from chassis.values.digests import digest, items_digest
from chassis.values.fields import parse_idempotency_key, parse_seconds, require_present, require_text
from shipping_service import failpoints
from shipping_service.domain import Address, Item, Parcel, RateCard, Recorded, Shipment, Shipper
from shop import cart_pb2, shipping_pb2, shipping_pb2_grpc
from shop_internal import record_digests_pb2, shipment_manifest_pb2, shipment_manifest_pb2_grpc

log = structlog.get_logger()

_MAX_KEY_LENGTH = 255
# For all valid parcels that are equal in these, the quote is the same until the rate card changes.
_QUOTE_DEPENDS_ON = (("quote-depends-on", "country,pieces"),)


@dataclass(frozen=True)
class ShippingService(shipping_pb2_grpc.ShippingServiceServicer):
    """Quotes by the latest valid rate card and ships parcels."""

    _rate_card: DataFile[RateCard]
    _shipper: Shipper
    _failpoints: Failpoints

    @override
    async def GetQuote(
        self, request: shipping_pb2.GetQuoteRequest, context: ServicerContext
    ) -> shipping_pb2.GetQuoteResponse:
        """Quote by the country and the number of pieces, and say so, so that callers may reuse the quote."""
        context.set_trailing_metadata(_QUOTE_DEPENDS_ON)
        cost = self._rate_card.value.quote(_parcel_from_wire(request))
        return shipping_pb2.GetQuoteResponse(cost_usd=money_to_wire(cost))

    @override
    async def ShipOrder(
        self, request: shipping_pb2.ShipOrderRequest, context: ServicerContext
    ) -> shipping_pb2.ShipOrderResponse:
        """Ship the items, once per `idempotency-key`."""
        key = _idempotency_key(context)
        parcel = _parcel_from_wire(request)
        charged_at = parse_seconds(metadata_value(context, "charged-at") or "0", "charged-at")
        await self._failpoints.reach(failpoints.BEFORE_SHIP)
        shipment = await self._shipper.ship(key, parcel, charged_at)
        log.debug("shipped", tracking_id=shipment.tracking_id, pieces=parcel.pieces)
        await self._failpoints.reach(failpoints.AFTER_SHIP)
        return shipping_pb2.ShipOrderResponse(tracking_id=shipment.tracking_id)


@dataclass(frozen=True)
class ShipmentManifest(shipment_manifest_pb2_grpc.ShipmentManifestServicer):
    """The internal service: for callers in doubt about a shipment, and for reconciliation."""

    _shipper: Shipper
    _failpoints: Failpoints

    @override
    async def ResolveOrFence(
        self, request: shipment_manifest_pb2.ResolveShipmentRequest, _context: ServicerContext
    ) -> shipment_manifest_pb2.ResolveShipmentResponse:
        key = require_text(request.shipment_key, "shipment_key", max_length=_MAX_KEY_LENGTH)
        charged_at = parse_wire_time(request.charged_at, field="charged_at")
        await self._failpoints.reach(failpoints.BEFORE_RESOLVE_OR_FENCE)
        recorded = await self._shipper.resolve_or_fence(key, charged_at)
        log.info("resolved", tracking_id=recorded.entry.tracking_id, fenced=recorded.entry.parcel is None)
        await self._failpoints.reach(failpoints.AFTER_RESOLVE_OR_FENCE)
        return _resolved_to_wire(recorded)

    @override
    async def ListShipments(
        self, request: shipment_manifest_pb2.ListShipmentsRequest, _context: ServicerContext
    ) -> shipment_manifest_pb2.ListShipmentsResponse:
        after = paging.parse_position(parse_wire_time(request.since, field="since"), request.page_token)
        page = await self._shipper.manifest.list_shipments(after, paging.PAGE_SIZE)
        shipments = [_shipment_to_wire(shipment) for shipment in page]
        return shipment_manifest_pb2.ListShipmentsResponse(
            shipments=shipments,
            next_page_token=paging.next_page_token(page),
            complete_since=time_to_wire(self._shipper.complete_since()),
        )


def _idempotency_key(context: ServicerContext) -> str:
    """Return the call's idempotency-key; a call without one gets a random key."""
    given = metadata_value(context, "idempotency-key")
    return str(uuid.uuid4()) if given is None else parse_idempotency_key(given)


def _resolved_to_wire(recorded: Recorded) -> shipment_manifest_pb2.ResolveShipmentResponse:
    if recorded.entry.parcel is None:
        fenced = shipment_manifest_pb2.ShipmentFenced(existing=recorded.existing)
        return shipment_manifest_pb2.ResolveShipmentResponse(fenced=fenced)
    shipped = shipment_manifest_pb2.Shipment(tracking_id=recorded.entry.tracking_id)
    return shipment_manifest_pb2.ResolveShipmentResponse(shipped=shipped)


def _shipment_to_wire(shipment: Shipment) -> shipment_manifest_pb2.RecordedShipment:
    return shipment_manifest_pb2.RecordedShipment(
        shipment_key=shipment.key,
        tracking_id=shipment.tracking_id,
        recorded_at=time_to_wire(shipment.recorded_at),
        digests=record_digests_pb2.RecordDigests(
            address=digest(shipment.parcel.address), items=items_digest(shipment.parcel.items)
        ),
    )


def _parcel_from_wire(request: shipping_pb2.GetQuoteRequest | shipping_pb2.ShipOrderRequest) -> Parcel:
    require_present(request.HasField("address"), "address")
    address = request.address
    return Parcel(
        Address(address.street_address, address.city, address.state, address.country, address.zip_code),
        _items_from_wire(request.items),
    )


def _items_from_wire(items: Iterable[cart_pb2.CartItem]) -> tuple[Item, ...]:
    return tuple(Item(item.product_id, item.quantity) for item in items)
