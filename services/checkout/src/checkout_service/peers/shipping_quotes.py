"""Gets quotes from shipping, and reuses them for parcels that cost the same, as shipping says."""

import asyncio
from collections.abc import Callable, Sequence

from chassis.rpc.wire import money_from_wire
from chassis.telemetry import semconv
from chassis.telemetry.instruments import Telemetry
from chassis.values.addresses import Address
from chassis.values.money import Money
from checkout_service.domain import CartLine, QuoteRefused
from checkout_service.peers.errors import READ_REFUSALS, reading
from checkout_service.peers.wire import address_to_wire, lines_to_wire
from shop import shipping_pb2
from shop.shipping_pb2_grpc import ShippingServiceStub

TTL_SECONDS = 60.0
MAX_QUOTES = 10_000

# Trailing metadata of a quote that is the same for all parcels to its country with the same number of pieces.
DEPENDS_ON = ("quote-depends-on", "country,pieces")


class ShippingQuotes:
    """Gets quotes from shipping. One that has DEPENDS_ON is reused for a minute, as long as shipping is serving.

    Otherwise every quote is a call, which fails: an order that cannot be shipped now must not be charged.

    Args:
        is_serving: returns whether a replica of shipping is connected and healthy.
    """

    def __init__(self, stub: ShippingServiceStub, is_serving: Callable[[], bool], telemetry: Telemetry) -> None:
        self._stub = stub
        self._is_serving = is_serving
        self._quotes: dict[tuple[str, int], tuple[Money, float]] = {}
        self._lookups = telemetry.counter(semconv.CACHE_LOOKUPS)
        self._hit, self._miss = (
            ((semconv.CACHE_NAME, "quotes"), (semconv.CACHE_RESULT, result)) for result in ("hit", "miss")
        )

    async def quote(self, address: Address, lines: Sequence[CartLine]) -> Money:
        """Return the cost of shipping. Raises QuoteRefused, DependencyUnavailable, PeerBroken."""
        key = (address.country, sum(line.quantity for line in lines))
        cost, expires_at = self._quotes.get(key, (None, 0.0))
        if cost is not None and asyncio.get_running_loop().time() < expires_at and self._is_serving():
            self._lookups.add(1, self._hit)
            return cost
        self._lookups.add(1, self._miss)
        request = shipping_pb2.GetQuoteRequest(address=address_to_wire(address), items=lines_to_wire(lines))
        call = self._stub.GetQuote(request)
        try:
            with reading("shipping", *READ_REFUSALS):
                response = await call
        except READ_REFUSALS as error:
            raise QuoteRefused(f"no shipping: {error.message}", metadata={"peer_reason": error.reason}) from error
        cost = money_from_wire(response.cost_usd)
        if DEPENDS_ON in tuple(await call.trailing_metadata() or ()):
            self._store(key, cost)
        return cost

    def _store(self, key: tuple[str, int], cost: Money) -> None:
        if key not in self._quotes and len(self._quotes) >= MAX_QUOTES:
            del self._quotes[next(iter(self._quotes))]  # the oldest
        self._quotes[key] = (cost, asyncio.get_running_loop().time() + TTL_SECONDS)
