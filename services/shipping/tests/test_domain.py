from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chassis.errors import IdempotencyKeyReused
from chassis.values.orders import Address, Item
from shipping_service.__main__ import Settings
from shipping_service.domain import Entry, Parcel, RateCard, ShipmentForgotten, Shipper
from shipping_service.manifest.sql import open_manifest
from shipping_service.store import parse_rate_card
from shop_kit.databases import execute
from shop_kit.failing import rejecting

MakeParcel = Callable[..., Parcel]
PACKAGED = parse_rate_card(Settings().rate_card_file.read_bytes())


@pytest.mark.parametrize(("pieces", "price"), [(1, 10), (2, 10), (3, 20), (5, 20), (6, 23), (7, 26), (105, 320)])
def test_the_price_is_that_of_the_smallest_bracket_that_fits(
    rate_card: RateCard, parcel: MakeParcel, pieces: int, price: int
) -> None:
    assert rate_card.quote(parcel((Item("pan", pieces),))).units == price


def test_pieces_count_over_all_items(rate_card: RateCard, parcel: MakeParcel) -> None:
    split, whole = parcel((Item("pan", 2), Item("knife", 4))), parcel((Item("pan", 6),))
    assert rate_card.quote(split) == rate_card.quote(whole)


@pytest.mark.parametrize(
    ("country", "price"),
    [
        *((country, 20) for country in ("Germany", "GERMANY", " germany ", "DE", "de", "D.E.")),
        *((country, 68) for country in ("Atlantis", "Germania")),
    ],
)
def test_a_country_has_its_zone_in_any_spelling_or_the_default_one(
    rate_card: RateCard, parcel: MakeParcel, country: str, price: int
) -> None:
    assert rate_card.quote(parcel(country=country)).units == price


@pytest.mark.parametrize("country", ["US", "USA", "U.S.A.", "united states", "Canada", "DE", "Japan", "BR", "Narnia"])
@given(pieces=st.integers(1, 999_999))
def test_prices_never_fall_as_pieces_are_added(country: str, pieces: int) -> None:
    address = Address("Gate 1", "Oslo", "", country, 0)
    fewer, more = (PACKAGED.quote(Parcel(address, (Item("pan", count),))) for count in (pieces, pieces + 1))
    assert 0 < fewer.total_nanos <= more.total_nanos


def test_home_is_the_cheapest_zone_of_the_packaged_rate_card(parcel: MakeParcel) -> None:
    assert all(
        PACKAGED.quote(parcel(country="US")).total_nanos < zone.price(3).total_nanos
        for key, zone in PACKAGED.zones.items()
        if zone is not PACKAGED.zones["us"]
    )


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"zip_code": -1}, "address.zip_code"),
        *(({name: "x" * 257}, f"address.{name}") for name in ("street_address", "city", "state", "country")),
        *(({name: text}, f"address.{name}") for name in ("street_address", "city", "country") for text in ("", " \n")),
        ({"items": ()}, "items"),
        ({"items": (Item("pan", 0),)}, "items[0].quantity"),
        ({"items": (Item("pan", 1), Item("knife", -1))}, "items[1].quantity"),
        ({"items": (Item("pan", 1_000_001),)}, "items[0].quantity"),
        ({"items": (Item("pan", 1_000_000), Item("knife", 1))}, "items"),
        ({"items": (Item("x" * 257, 1),)}, "items[0].product_id"),
    ],
)
def test_a_parcel_beyond_its_limits_is_rejected_with_the_name_of_the_field(
    parcel: MakeParcel, change: dict[str, Any], field: str
) -> None:
    with rejecting(field):
        parcel(**change).validate()


def test_a_key_has_the_same_tracking_id_in_every_release() -> None:
    assert Entry("key").tracking_id == "SHOP-3BC9C88BDDAA5DB1BEE21F9E9A374EC3"


@pytest.fixture
async def shipper(sqlite_url: str) -> AsyncIterator[Shipper]:
    execute(sqlite_url, "UPDATE retention SET deleted_until = 1000")
    async with open_manifest(sqlite_url) as manifest:
        yield Shipper(manifest)


async def test_a_repeated_shipment_is_the_first_one_also_of_a_parcel_at_every_limit(
    shipper: Shipper, parcel: MakeParcel
) -> None:
    limits = dict.fromkeys(("street_address", "city", "state", "country"), "é" * 256)
    largest = parcel((Item("x" * 256, 1_000_000),), **limits, zip_code=2**31 - 1)
    shipped = await shipper.ship("key", largest)
    assert shipped == await shipper.ship("key", largest) == await shipper.manifest.find("key")
    assert shipped.parcel == largest


@pytest.mark.parametrize("changed", [{"zip_code": 1}, {"city": "Berlin"}, {"items": (Item("pan", 4),)}, {"items": ()}])
async def test_a_key_reused_for_another_parcel_is_rejected(
    shipper: Shipper, parcel: MakeParcel, changed: dict[str, object]
) -> None:
    await shipper.ship("key", parcel())
    with pytest.raises(IdempotencyKeyReused):
        await shipper.ship("key", parcel(**changed))


async def test_an_invalid_parcel_leaves_its_key_unused(shipper: Shipper, parcel: MakeParcel) -> None:
    with rejecting("items"):
        await shipper.ship("key", parcel(()))
    assert await shipper.manifest.find("key") is None


async def test_a_shipment_repeats_even_if_its_parcel_is_no_longer_valid(shipper: Shipper, parcel: MakeParcel) -> None:
    shipped = Entry("key", parcel(street_address="", city="", country=""))
    await shipper.manifest.record(shipped)
    assert await shipper.ship("key", parcel(street_address="", city="", country="")) == shipped


@pytest.mark.parametrize("charged_at", [999.0, 1000.0])
async def test_what_was_charged_before_the_oldest_entry_is_neither_shipped_nor_fenced(
    shipper: Shipper, parcel: MakeParcel, charged_at: float
) -> None:
    for call in (shipper.ship("key", parcel(), charged_at), shipper.resolve_or_fence("key", charged_at)):
        with pytest.raises(ShipmentForgotten):
            await call
    assert await shipper.manifest.find("key") is None


@pytest.mark.parametrize("charged_at", [0.0, 999.0, 1001.0])
async def test_an_entry_that_was_not_deleted_is_returned_however_old_its_charge_is(
    shipper: Shipper, parcel: MakeParcel, charged_at: float
) -> None:
    shipped = await shipper.ship("key", parcel(), 1001.0)
    assert await shipper.ship("key", parcel(), charged_at) == shipped
    assert await shipper.resolve_or_fence("key", charged_at) == shipped
