"""shop.ShippingService: maps messages to the domain and back."""

from collections.abc import Iterable

import structlog

from chassis.calls import metadata_value
from chassis.datafile import DataFile
from chassis.failpoints import Failpoints
from chassis.fields import parse_idempotency_key, require_present
from chassis.serving import ServicerContext
from chassis.wire import money_to_wire
from shipping_service import failpoints
from shipping_service.domain import Address, Item, Parcel, RateCard, Shipper
from shop import cart_pb2, shipping_pb2, shipping_pb2_grpc

log = structlog.get_logger()


class ShippingService(shipping_pb2_grpc.ShippingServiceServicer):
    """Quotes by the latest valid rate card and ships parcels."""

    def __init__(self, rate_card: DataFile[RateCard], shipper: Shipper, active_failpoints: Failpoints) -> None:
        self._rate_card = rate_card
        self._shipper = shipper
        self._failpoints = active_failpoints

    async def GetQuote(
        self, request: shipping_pb2.GetQuoteRequest, _context: ServicerContext
    ) -> shipping_pb2.GetQuoteResponse:
        cost = self._rate_card.value.quote(_parcel_from_wire(request))
        return shipping_pb2.GetQuoteResponse(cost_usd=money_to_wire(cost))

    async def ShipOrder(
        self, request: shipping_pb2.ShipOrderRequest, context: ServicerContext
    ) -> shipping_pb2.ShipOrderResponse:
        """Ship the items, at most once per `idempotency-key`."""
        key = metadata_value(context, "idempotency-key")
        if key is not None:
            parse_idempotency_key(key)
        parcel = _parcel_from_wire(request)
        await self._failpoints.reach(failpoints.BEFORE_SHIP)
        shipment = await self._shipper.ship(parcel, key)
        log.info("shipped", tracking_id=shipment.tracking_id, pieces=parcel.pieces)
        await self._failpoints.reach(failpoints.AFTER_SHIP)
        return shipping_pb2.ShipOrderResponse(tracking_id=shipment.tracking_id)


def _parcel_from_wire(request: shipping_pb2.GetQuoteRequest | shipping_pb2.ShipOrderRequest) -> Parcel:
    require_present(request.HasField("address"), "address")
    address = request.address
    return Parcel(
        Address(address.street_address, address.city, address.state, address.country, address.zip_code),
        _items_from_wire(request.items),
    )


def _items_from_wire(items: Iterable[cart_pb2.CartItem]) -> tuple[Item, ...]:
    return tuple(Item(item.product_id, item.quantity) for item in items)
