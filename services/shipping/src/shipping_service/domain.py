"""Shipping quotes, and shipments identified by idempotency keys.

Each key gets one manifest entry, which is kept until its retention period ends. The first write makes the entry a
shipment or a fence. Every later write returns the existing entry, so repeating a shipment does not ship again, and a
shipment requested after a fence fails.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Annotated, Protocol

from msgspec import Meta, Struct

from chassis.errors import Aborted, FailedPrecondition, IdempotencyKeyReused, InvalidArgument, Unavailable
from chassis.values.countries import normalize_country
from chassis.values.fields import limit_text, require_between
from chassis.values.money import NANOS_PER_UNIT, Money, require_decimal
from chassis.values.orders import Address, Item, check_address
from chassis.values.paging import KeyedEntry

MAX_TEXT_LENGTH = 256
MAX_PIECES = 1_000_000
# The UUID namespace for tracking ids. Never change it: repeated shipments would get different ids.
_TRACKING_IDS = uuid.UUID("b0a1d0de-5d5c-4d6b-8a52-3d0c1f7f5b1e")


class ManifestUnavailable(Unavailable):
    """The manifest's database did not respond. Retry with the same key to learn whether a write took effect."""

    def __init__(self) -> None:
        super().__init__("the manifest is unavailable; the outcome is unknown, retry with the same key")


class ShipmentFenced(Aborted):
    """The key was fenced before this shipment was requested, so a new shipment needs a new key."""


class ShipmentForgotten(FailedPrecondition):
    """The key has no entry, but may have had one: the charge is so old that the entry may have been deleted."""


@dataclass(frozen=True, slots=True)
class Parcel:
    """Items and the address to send them to. Creating a parcel doesn't validate it; quoting or shipping it does."""

    address: Address
    items: tuple[Item, ...]

    def validate(self) -> None:
        """Raise InvalidArgument for the first invalid field."""
        check_address(self.address, "address")
        if not self.items:
            raise InvalidArgument.field("items", "must not be empty")
        for index, item in enumerate(self.items):
            limit_text(item.product_id, f"items[{index}].product_id", max_length=MAX_TEXT_LENGTH)
            require_between(item.quantity, f"items[{index}].quantity", 1, MAX_PIECES)
        if self.pieces > MAX_PIECES:
            raise InvalidArgument.field("items", f"must be at most {MAX_PIECES} pieces in total")

    @property
    def pieces(self) -> int:
        return sum(item.quantity for item in self.items)


Name = Annotated[str, Meta(pattern=r"\S", max_length=256)]


class Bracket(Struct, frozen=True, forbid_unknown_fields=True):
    """The price of a parcel with at most `pieces` pieces. Raises ValueError if the price is out of range."""

    pieces: Annotated[int, Meta(ge=1)]
    price_usd: Decimal

    def __post_init__(self) -> None:
        _require_price("price_usd", self.price_usd)


class Zone(Struct, frozen=True, forbid_unknown_fields=True):
    """Parcel prices for a group of countries. Raises ValueError if a price is out of range or the brackets don't rise.

    Attributes:
        brackets: at least one bracket, sorted by ascending `pieces`; prices never decrease.
        further_piece_usd: the price of each piece beyond the last bracket.
        countries: names or codes; None for the zone that covers all other countries.
    """

    name: Name
    brackets: Annotated[list[Bracket], Meta(min_length=1)]
    further_piece_usd: Decimal
    countries: list[Name] | None = None

    def __post_init__(self) -> None:
        _require_price("further_piece_usd", self.further_piece_usd)
        for lower, upper in zip(self.brackets, self.brackets[1:], strict=False):
            if upper.pieces <= lower.pieces or upper.price_usd < lower.price_usd:
                raise ValueError("the brackets must rise in pieces and never fall in price")

    def price(self, pieces: int) -> Money:
        """Return the price of a parcel with this many pieces. A parcel with more pieces never costs less."""
        last = self.brackets[-1]
        bracket = next((bracket for bracket in self.brackets if pieces <= bracket.pieces), last)
        price = bracket.price_usd + self.further_piece_usd * max(0, pieces - last.pieces)
        return Money("USD", int(price * NANOS_PER_UNIT))


def _require_price(field: str, price: Decimal) -> None:
    require_decimal(field, price, lowest=Decimal(0), highest=Decimal(1_000_000), places=2)


class RateCard:
    """The shipping prices for all countries.

    Raises ValueError unless exactly one zone has no countries, or if a country is in two zones.
    """

    def __init__(self, zones: Sequence[Zone]) -> None:
        default_zones = [zone for zone in zones if zone.countries is None]
        if len(default_zones) != 1:
            raise ValueError("there must be exactly one zone without countries, which covers all others")
        self.default_zone = default_zones[0]
        self.zones: dict[str, Zone] = {}
        for zone in zones:
            for country in map(normalize_country, zone.countries or ()):
                if self.zones.setdefault(country, zone) is not zone:
                    raise ValueError(f"{country!r} is in two zones: {self.zones[country].name!r} and {zone.name!r}")

    def quote(self, parcel: Parcel) -> Money:
        """Return the price of a parcel. Raise InvalidArgument if a field is invalid."""
        parcel.validate()
        zone = self.zones.get(normalize_country(parcel.address.country), self.default_zone)
        return zone.price(parcel.pieces)


@dataclass(frozen=True)
class Entry(KeyedEntry):
    """The manifest's entry for a key: a shipment if it has a parcel, otherwise a fence."""

    parcel: Parcel | None = None

    @cached_property
    def tracking_id(self) -> str:
        """The tracking id, derived from the key so that it stays the same even if the manifest is lost."""
        return f"SHOP-{uuid.uuid5(_TRACKING_IDS, self.key).hex.upper()}"


class Manifest(Protocol):
    """Stores entries durably: every entry a method returns is on disk. Every method may raise ManifestUnavailable."""

    async def record(self, entry: Entry, charged_at: float = 0.0) -> Entry:
        """Store the entry unless its key already has an entry. Return the key's entry.

        Raise ShipmentForgotten if the key may have had an entry that was deleted. See `Shipper` for `charged_at`.
        """

    async def find(self, key: str) -> Entry | None: ...


@dataclass(frozen=True, slots=True)
class Shipper:
    """Accepts parcels, once per idempotency key, and records them in the manifest.

    `charged_at` is the Unix timestamp of the order's charge, which always precedes the shipment; 0 if unknown.
    """

    manifest: Manifest

    async def ship(self, key: str, parcel: Parcel, charged_at: float = 0.0) -> Entry:
        """Ship once per key and return the key's shipment.

        If the key has an entry, that entry decides the outcome, even if the current rules make the parcel invalid.

        Raise InvalidArgument if the parcel is invalid, IdempotencyKeyReused or ShipmentFenced if the key belongs to
        a different shipment or a fence, ShipmentForgotten if its entry may have been deleted, ManifestUnavailable if
        the manifest fails.
        """
        try:
            parcel.validate()
        except InvalidArgument:
            found = await self.manifest.find(key)
            if found is None:
                raise
            return _require_shipped(found, parcel)
        return _require_shipped(await self.manifest.record(Entry(key, parcel), charged_at), parcel)

    async def resolve_or_fence(self, key: str, charged_at: float = 0.0) -> Entry:
        """Return the key's entry. If there is none, fence the key so that no shipment under it can succeed."""
        return await self.manifest.record(Entry(key), charged_at)


def _require_shipped(entry: Entry, parcel: Parcel) -> Entry:
    """Return the entry if it is the requested shipment; otherwise raise ShipmentFenced or IdempotencyKeyReused."""
    if entry.parcel is None:
        raise ShipmentFenced("the key was fenced before this shipment was requested; a new shipment needs a new key")
    if entry.parcel != parcel:
        raise IdempotencyKeyReused
    return entry
