"""Servicers for shop.ShippingService and shop.internal.ShipmentManifest."""

import uuid
from dataclasses import dataclass

import structlog

from chassis.rpc.calls import ServicerContext, idempotency_key, metadata_of
from chassis.rpc.wire import address_from_wire, items_from_wire, money_to_wire, parse_wire_time, time_to_wire
from chassis.values import paging
from chassis.values.datafile import DataFile
from chassis.values.digests import digest, items_digest
from chassis.values.fields import parse_seconds, require_present, require_text
from shipping_service.domain import Entry, Parcel, RateCard, Shipper
from shipping_service.manifest.sql import SqlManifest
from shop import shipping_pb2, shipping_pb2_grpc
from shop_internal import record_digests_pb2
from shop_internal import shipment_manifest_pb2 as pb2
from shop_internal import shipment_manifest_pb2_grpc as pb2_grpc

log = structlog.get_logger()

_MAX_KEY_LENGTH = 255
# Until the rate card changes, valid parcels with the same country and number of pieces get the same quote.
_QUOTE_DEPENDS_ON = (("quote-depends-on", "country,pieces"),)


@dataclass(frozen=True)
class ShippingService(shipping_pb2_grpc.ShippingServiceServicer, pb2_grpc.ShipmentManifestServicer):
    """Serves the public API, and an internal API for reconciliation and for resolving shipments of unknown outcome."""

    _rate_card: DataFile[RateCard]
    _shipper: Shipper
    _manifest: SqlManifest

    async def GetQuote(
        self, request: shipping_pb2.GetQuoteRequest, context: ServicerContext
    ) -> shipping_pb2.GetQuoteResponse:
        """Return a quote. Trailing metadata names the fields that the cost depends on, so that callers can cache it."""
        context.set_trailing_metadata(_QUOTE_DEPENDS_ON)
        cost = self._rate_card.value.quote(_parcel_from_wire(request))
        return shipping_pb2.GetQuoteResponse(cost_usd=money_to_wire(cost))

    async def ShipOrder(
        self, request: shipping_pb2.ShipOrderRequest, context: ServicerContext
    ) -> shipping_pb2.ShipOrderResponse:
        """Ship the items, once per `idempotency-key`."""
        metadata = metadata_of(context)
        key = idempotency_key(metadata) or str(uuid.uuid4())
        parcel = _parcel_from_wire(request)
        charged_at = parse_seconds(metadata.get("charged-at") or "0", "charged-at")
        shipment = await self._shipper.ship(key, parcel, charged_at)
        log.debug("shipped", tracking_id=shipment.tracking_id, pieces=parcel.pieces)
        return shipping_pb2.ShipOrderResponse(tracking_id=shipment.tracking_id)

    async def ResolveOrFence(
        self, request: pb2.ResolveShipmentRequest, _context: ServicerContext
    ) -> pb2.ResolveShipmentResponse:
        key = require_text(request.shipment_key, "shipment_key", max_length=_MAX_KEY_LENGTH)
        charged_at = parse_wire_time(request.charged_at, field="charged_at")
        entry = await self._shipper.resolve_or_fence(key, charged_at)
        log.info("resolved", tracking_id=entry.tracking_id, fenced=entry.parcel is None)
        return _outcome_to_wire(entry)

    async def ListShipments(
        self, request: pb2.ListShipmentsRequest, _context: ServicerContext
    ) -> pb2.ListShipmentsResponse:
        manifest, since = self._manifest, parse_wire_time(request.since, field="since")
        page, token = await paging.read_page(request, since, manifest.scan, manifest.list_of_orders)
        return pb2.ListShipmentsResponse(
            shipments=map(_shipment_to_wire, page),
            next_page_token=token,
            complete_since=time_to_wire(await manifest.deletions.complete_since()),
        )


def _outcome_to_wire(entry: Entry) -> pb2.ResolveShipmentResponse:
    if entry.parcel is None:
        return pb2.ResolveShipmentResponse(fenced=pb2.ShipmentFenced(existing=entry.existing))
    return pb2.ResolveShipmentResponse(shipped=pb2.Shipment(tracking_id=entry.tracking_id))


def _shipment_to_wire(entry: Entry) -> pb2.RecordedShipment:
    shipment = pb2.RecordedShipment(
        shipment_key=entry.key, tracking_id=entry.recorded_id, recorded_at=time_to_wire(entry.recorded_at)
    )
    if (parcel := entry.parcel) is not None:
        items, tracking = items_digest(parcel.items), digest(entry.recorded_id or "none")
        digests = record_digests_pb2.RecordDigests(address=digest(parcel.address), items=items, tracking=tracking)
        shipment.digests.CopyFrom(digests)
    return shipment


def _parcel_from_wire(request: shipping_pb2.GetQuoteRequest | shipping_pb2.ShipOrderRequest) -> Parcel:
    require_present(request.HasField("address"), "address")
    return Parcel(address_from_wire(request.address), items_from_wire(request.items))
