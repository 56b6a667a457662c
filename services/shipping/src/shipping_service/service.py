"""shop.ShippingService: from the wire to the domain and back."""

from collections.abc import Iterable

import structlog

from chassis.calls import metadata_value
from chassis.datafile import DataFile
from chassis.failpoints import Failpoints
from chassis.fields import parse_idempotency_key, require_present
from chassis.serving import ServicerContext
from chassis.wire import money_to_wire
from shipping_service import failpoints
from shipping_service.domain import Address, Dispatch, Item, Parcel, RateCard
from shop import cart_pb2, shipping_pb2, shipping_pb2_grpc

log = structlog.get_logger()


class ShippingService(shipping_pb2_grpc.ShippingServiceServicer):
    """Quotes by the rate card of the moment, and accepts what it quotes."""

    def __init__(self, rate_card: DataFile[RateCard], dispatch: Dispatch, active: Failpoints) -> None:
        self._rate_card = rate_card
        self._dispatch = dispatch
        self._failpoints = active

    async def GetQuote(
        self, request: shipping_pb2.GetQuoteRequest, _context: ServicerContext
    ) -> shipping_pb2.GetQuoteResponse:
        """What it costs to send these items to this address."""
        cost = self._rate_card.value.quote(_to_parcel(request))
        return shipping_pb2.GetQuoteResponse(cost_usd=money_to_wire(cost))

    async def ShipOrder(
        self, request: shipping_pb2.ShipOrderRequest, context: ServicerContext
    ) -> shipping_pb2.ShipOrderResponse:
        """Send these items to this address, once for each idempotency-key."""
        key = metadata_value(context, "idempotency-key")
        if key is not None:
            parse_idempotency_key(key)
        parcel = _to_parcel(request)
        await self._failpoints.reach(failpoints.BEFORE_SHIP)
        shipment = await self._dispatch.ship(parcel, key)
        log.info("shipped", tracking_id=shipment.tracking_id, pieces=parcel.pieces)
        await self._failpoints.reach(failpoints.AFTER_SHIP)
        return shipping_pb2.ShipOrderResponse(tracking_id=shipment.tracking_id)


def _to_parcel(request: shipping_pb2.GetQuoteRequest | shipping_pb2.ShipOrderRequest) -> Parcel:
    require_present(request.HasField("address"), "address")
    address = request.address
    return Parcel(
        Address(address.street_address, address.city, address.state, address.country, address.zip_code),
        _to_items(request.items),
    )


def _to_items(items: Iterable[cart_pb2.CartItem]) -> tuple[Item, ...]:
    return tuple(Item(item.product_id, item.quantity) for item in items)
