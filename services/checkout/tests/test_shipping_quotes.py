"""Which quotes of shipping are reused, and when."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from chassis.errors import InvalidArgument
from chassis.rpc.client import channel
from chassis.telemetry import semconv
from chassis.telemetry.instruments import Telemetry
from chassis.values.money import Money
from chassis.values.orders import Address, Item
from checkout_service.domain import QuoteRefused
from checkout_service.peers import quotes
from checkout_service.peers.quotes import ShopQuotes
from shop.shipping_pb2_grpc import ShippingServiceStub
from shop_kit.fake_peers import FakePeers, Fault

COST = Money("USD", 4_995_000_000)
BREMEN = Address("Lindenweg 7", "Bremen", "HB", "Germany", 28195)
BERLIN = Address("Main 1", "Berlin", "BE", "Germany", 10115)
OSLO = Address("Gate 1", "Oslo", "", "Norway", 150)
THREE_PIECES = [Item("mug", 3)]


@dataclass
class Quoting:
    """Quotes of a fake shipping; `serving` is what the channel reports of it."""

    quotes: ShopQuotes
    peers: FakePeers
    telemetry: Telemetry
    serving: bool = True

    async def calls_of(self, *parcels: tuple[Address, list[Item]]) -> int:
        """Return how many calls it takes to quote these parcels, one after the other."""
        before = self.peers.shipping.calls["GetQuote"]
        for address, lines in parcels:
            assert await self.quotes.shipping(address, lines) == COST
        return self.peers.shipping.calls["GetQuote"] - before


@pytest.fixture
async def shipping(peers: FakePeers) -> AsyncIterator[Quoting]:
    peers.shipping.quote_depends_on = "country,pieces"
    async with peers.serving() as address:
        opened = channel(address, "shop.ShippingService", timeout_seconds=20)
        telemetry = Telemetry()
        none: Any = None
        stub = ShippingServiceStub(opened)
        reads = ShopQuotes(none, none, none, stub, telemetry, can_ship=lambda: made.serving, with_generations=False)
        made = Quoting(reads, peers, telemetry)
        try:
            yield made
        finally:
            await opened.close()


async def test_a_quote_is_reused_for_as_many_pieces_to_the_same_country(shipping: Quoting) -> None:
    assert await shipping.calls_of((BREMEN, THREE_PIECES), (BERLIN, [Item("cup", 1), Item("pan", 2)])) == 1
    lookups = shipping.telemetry.counter(semconv.CACHE_LOOKUPS).points()
    counts = {dict(attributes)[semconv.CACHE_RESULT]: count for count, attributes in lookups}
    assert counts == {"miss": 1, "hit": 1}


async def test_another_country_and_another_number_of_pieces_have_quotes_of_their_own(shipping: Quoting) -> None:
    parcels = (BREMEN, THREE_PIECES), (OSLO, THREE_PIECES), (BREMEN, [Item("mug", 4)])
    assert await shipping.calls_of(*parcels) == 3
    assert await shipping.calls_of(*parcels) == 0


@pytest.mark.parametrize(
    ("depends_on", "ttl_seconds"), [("", 3600.0), ("country,weight", 3600.0), ("country,pieces", 0.0)]
)
async def test_a_quote_that_may_depend_on_more_or_has_expired_is_not_reused(
    shipping: Quoting, monkeypatch: pytest.MonkeyPatch, depends_on: str, ttl_seconds: float
) -> None:
    monkeypatch.setattr(quotes, "QUOTE_TTL_SECONDS", ttl_seconds)
    shipping.peers.shipping.quote_depends_on = depends_on
    assert await shipping.calls_of((BREMEN, THREE_PIECES), (BREMEN, THREE_PIECES)) == 2


async def test_no_quote_is_reused_while_shipping_does_not_serve(shipping: Quoting) -> None:
    await shipping.calls_of((BREMEN, THREE_PIECES))
    shipping.serving = False
    assert await shipping.calls_of((BREMEN, THREE_PIECES)) == 1
    shipping.serving = True
    assert await shipping.calls_of((BREMEN, THREE_PIECES)) == 0


async def test_a_refused_quote_is_not_stored(shipping: Quoting) -> None:
    refusal = InvalidArgument.field("address.country", "is not served")
    shipping.peers.shipping.faults["GetQuote"] = Fault(refusal, times=1)
    with pytest.raises(QuoteRefused):
        await shipping.quotes.shipping(BREMEN, THREE_PIECES)
    assert await shipping.calls_of((BREMEN, THREE_PIECES)) == 1


async def test_the_oldest_quote_makes_room(shipping: Quoting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quotes, "MAX_QUOTES", 2)
    one, two, three = ((BREMEN, [Item("mug", pieces)]) for pieces in (1, 2, 3))
    assert await shipping.calls_of(one, two, three) == 3
    assert await shipping.calls_of(two, three) == 0
    assert await shipping.calls_of(one) == 1
