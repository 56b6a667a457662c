import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from chassis.errors import IdempotencyKeyReused, InvalidArgument
from shipping_service.__main__ import Settings
from shipping_service.domain import (
    Address,
    Item,
    Manifest,
    ManifestUnavailable,
    Parcel,
    RateCard,
    Shipment,
    Shipper,
    normalize_country,
)
from shipping_service.store import parse_rate_card

MakeParcel = Callable[..., Parcel]
PACKAGED = parse_rate_card(Settings().rate_card_file.read_bytes())


class FakeManifest(Manifest):
    """A manifest in memory, which fails while `full` is set."""

    def __init__(self) -> None:
        self.shipments: list[Shipment] = []
        self.full = False

    @override
    async def append(self, shipment: Shipment) -> None:
        await asyncio.sleep(0)
        if self.full:
            raise ManifestUnavailable("full")
        self.shipments.append(shipment)


@pytest.mark.parametrize(("pieces", "price"), [(1, 10), (2, 10), (3, 20), (5, 20), (6, 23), (7, 26), (105, 320)])
def test_the_price_is_that_of_the_smallest_bracket_that_fits(
    rate_card: RateCard, parcel: MakeParcel, pieces: int, price: int
) -> None:
    assert rate_card.quote(parcel((Item("pan", pieces),))).units == price


def test_pieces_count_over_all_items(rate_card: RateCard, parcel: MakeParcel) -> None:
    split, whole = parcel((Item("pan", 2), Item("knife", 4))), parcel((Item("pan", 6),))
    assert rate_card.quote(split) == rate_card.quote(whole)


@pytest.mark.parametrize("country", ["Germany", "GERMANY", " germany ", "DE", "de", "D.E."])
def test_the_spelling_of_a_country_does_not_matter(rate_card: RateCard, parcel: MakeParcel, country: str) -> None:
    assert rate_card.quote(parcel(country=country)).units == 20


@pytest.mark.parametrize("country", ["", "Atlantis", "Germania"])
def test_a_country_without_a_zone_uses_the_default_zone(rate_card: RateCard, parcel: MakeParcel, country: str) -> None:
    assert rate_card.quote(parcel(country=country)).units == 68


@pytest.mark.parametrize("country", ["US", "USA", "U.S.A.", "united states", "Canada", "DE", "Japan", "BR", "Narnia"])
@given(pieces=st.integers(1, 999_999))
def test_prices_never_fall_as_pieces_are_added(country: str, pieces: int) -> None:
    fewer, more = (
        PACKAGED.quote(Parcel(Address("", "", "", country, 0), (Item("pan", count),))) for count in (pieces, pieces + 1)
    )
    assert 0 < fewer.total_nanos <= more.total_nanos


def test_home_is_the_cheapest_zone_of_the_packaged_rate_card(parcel: MakeParcel) -> None:
    assert all(
        PACKAGED.quote(parcel(country="US")).total_nanos < zone.price(3).total_nanos
        for key, zone in PACKAGED.zones.items()
        if zone is not PACKAGED.zones["us"]
    )


def test_spellings_of_a_country_are_normalized() -> None:
    assert {normalize_country(name) for name in ("U.S.A.", "usa", " Usa ")} == {"usa"}
    assert normalize_country("United\u00a0 States") == "united states"


@pytest.mark.parametrize(
    ("address", "field"),
    [
        ({"zip_code": -1}, "address.zip_code"),
        ({"street_address": "x" * 257}, "address.street_address"),
        ({"city": "x" * 257}, "address.city"),
        ({"state": "x" * 257}, "address.state"),
        ({"country": "x" * 257}, "address.country"),
    ],
)
def test_an_address_beyond_its_limits_is_rejected_with_the_name_of_the_field(
    parcel: MakeParcel, address: dict[str, object], field: str
) -> None:
    with pytest.raises(InvalidArgument) as refused:
        parcel(**address)
    assert refused.value.violations[0].field == field


@pytest.mark.parametrize(
    ("items", "field"),
    [
        ((), "items"),
        ((Item("pan", 0),), "items[0].quantity"),
        ((Item("pan", 1), Item("knife", -1)), "items[1].quantity"),
        ((Item("pan", 1_000_001),), "items[0].quantity"),
        ((Item("pan", 1_000_000), Item("knife", 1)), "items"),
        ((Item("x" * 257, 1),), "items[0].product_id"),
    ],
)
def test_items_beyond_their_limits_are_rejected_with_the_name_of_the_field(
    parcel: MakeParcel, items: tuple[Item, ...], field: str
) -> None:
    with pytest.raises(InvalidArgument) as refused:
        parcel(items)
    assert refused.value.violations[0].field == field


def test_a_parcel_at_every_limit_is_accepted(parcel: MakeParcel) -> None:
    limits = dict.fromkeys(("street_address", "city", "state", "country"), "é" * 256)
    assert parcel((Item("x" * 256, 1_000_000),), **limits, zip_code=2**31 - 1).pieces == 1_000_000


async def test_a_key_yields_the_same_tracking_id_in_every_process(parcel: MakeParcel) -> None:
    here, there = Shipper(FakeManifest()), Shipper(FakeManifest())
    assert await here.ship(parcel(), "key") == await here.ship(parcel(), "key") == await there.ship(parcel(), "key")


async def test_tracking_ids_of_other_keys_and_without_a_key_are_all_different(parcel: MakeParcel) -> None:
    shipper = Shipper(FakeManifest())
    keys = [*map(str, range(500)), *[None] * 500]
    assert len({(await shipper.ship(parcel(), key)).tracking_id for key in keys}) == 1000


async def test_a_repeated_shipment_is_recorded_once(parcel: MakeParcel) -> None:
    manifest = FakeManifest()
    shipper = Shipper(manifest)
    shipped = await shipper.ship(parcel(), "key")
    assert shipped == await shipper.ship(parcel(), "key")
    assert manifest.shipments == [shipped]


@pytest.mark.parametrize("changed", [{"zip_code": 1}, {"city": "Berlin"}, {"items": (Item("pan", 4),)}])
async def test_a_key_reused_for_another_parcel_is_rejected(parcel: MakeParcel, changed: dict[str, object]) -> None:
    shipper = Shipper(FakeManifest())
    await shipper.ship(parcel(), "key")
    with pytest.raises(IdempotencyKeyReused):
        await shipper.ship(parcel(**changed), "key")


async def test_of_two_concurrent_parcels_with_one_key_one_is_shipped(parcel: MakeParcel) -> None:
    manifest = FakeManifest()
    shipper = Shipper(manifest)
    results = await asyncio.gather(
        shipper.ship(parcel(), "key"), shipper.ship(parcel(zip_code=1), "key"), return_exceptions=True
    )
    assert [type(result) for result in results] == [Shipment, IdempotencyKeyReused]
    assert len(manifest.shipments) == 1


async def test_a_shipment_that_could_not_be_recorded_is_recorded_when_repeated(parcel: MakeParcel) -> None:
    manifest = FakeManifest()
    manifest.full = True
    shipper = Shipper(manifest)
    with pytest.raises(ManifestUnavailable):
        await shipper.ship(parcel(), "key")
    manifest.full = False
    assert [await shipper.ship(parcel(), "key")] == manifest.shipments


async def test_the_oldest_keys_are_evicted(parcel: MakeParcel) -> None:
    shipper = Shipper(FakeManifest(), max_keys=2)
    first = await shipper.ship(parcel(), "one")
    await shipper.ship(parcel(), "two")
    await shipper.ship(parcel(), "three")
    assert (await shipper.ship(parcel(zip_code=1), "one")).tracking_id == first.tracking_id
    with pytest.raises(IdempotencyKeyReused):
        await shipper.ship(parcel(zip_code=1), "three")
