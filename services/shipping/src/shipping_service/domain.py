"""Shipping quotes and shipments with idempotent tracking ids."""

import hashlib
import uuid
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from chassis.errors import IdempotencyKeyReused, InvalidArgument, Unavailable
from chassis.fields import limit_text, require_between
from chassis.money import Money

MAX_TEXT_LENGTH = 256
MAX_PIECES = 1_000_000
_MAX_INT32 = 2**31 - 1
# Tracking ids derive from it: never change it.
_TRACKING_ID_NAMESPACE = uuid.UUID("b0a1d0de-5d5c-4d6b-8a52-3d0c1f7f5b1e")


class ManifestUnavailable(Unavailable):
    """The shipment could not be recorded, so it was not accepted."""


@dataclass(frozen=True, slots=True)
class Address:
    """The destination of a parcel. The country is a name or an ISO 3166 code of two or three letters."""

    street_address: str
    city: str
    state: str
    country: str
    zip_code: int


@dataclass(frozen=True, slots=True)
class Item:
    """A quantity of a product."""

    product_id: str
    quantity: int


@dataclass(frozen=True, slots=True)
class Parcel:
    """Items to send to an address. Quotes and shipments validate the same parcel, so a quoted parcel is accepted.

    Raises InvalidArgument with the path of the invalid field.
    """

    address: Address
    items: Sequence[Item]

    def __post_init__(self) -> None:
        for name in ("street_address", "city", "state", "country"):
            limit_text(getattr(self.address, name), f"address.{name}", max_length=MAX_TEXT_LENGTH)
        require_between(self.address.zip_code, "address.zip_code", 0, _MAX_INT32)
        if not self.items:
            raise InvalidArgument.field("items", "must not be empty")
        for index, item in enumerate(self.items):
            limit_text(item.product_id, f"items[{index}].product_id", max_length=MAX_TEXT_LENGTH)
            require_between(item.quantity, f"items[{index}].quantity", 1, MAX_PIECES)
        if self.pieces > MAX_PIECES:
            raise InvalidArgument.field("items", f"must be at most {MAX_PIECES} pieces in total")

    @property
    def pieces(self) -> int:
        """The total quantity of all items."""
        return sum(item.quantity for item in self.items)

    @property
    def fingerprint(self) -> bytes:
        """A hash of the whole parcel, to compare requests with the same idempotency key."""
        return hashlib.blake2b(repr(self).encode(), digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class Bracket:
    """The price of a parcel of up to `pieces` pieces."""

    pieces: int
    price: Money


@dataclass(frozen=True, slots=True)
class Zone:
    """Prices of parcels to a group of countries.

    Attributes:
        brackets: at least one, with increasing pieces and non-decreasing prices.
        further_piece: price of each piece beyond the last bracket.
    """

    name: str
    brackets: Sequence[Bracket]
    further_piece: Money

    def price(self, pieces: int) -> Money:
        """Return the price of a parcel; it never falls as pieces are added."""
        for bracket in self.brackets:
            if pieces <= bracket.pieces:
                return bracket.price
        return self.brackets[-1].price + self.further_piece * (pieces - self.brackets[-1].pieces)


@dataclass(frozen=True, slots=True)
class RateCard:
    """All zones.

    Attributes:
        zones: by country, normalized by `normalize_country`.
        default_zone: the zone of all other countries, so that every address has a price.
    """

    zones: Mapping[str, Zone]
    default_zone: Zone

    def quote(self, parcel: Parcel) -> Money:
        zone = self.zones.get(normalize_country(parcel.address.country), self.default_zone)
        return zone.price(parcel.pieces)


def normalize_country(country: str) -> str:
    """Return a country in lower case, without dots and with single spaces: `U.S.` becomes `us`."""
    return " ".join(country.casefold().replace(".", "").split())


@dataclass(frozen=True, slots=True)
class Shipment:
    """An accepted parcel. The key is the idempotency key, None if the caller sent none."""

    tracking_id: str
    key: str | None
    parcel: Parcel


class Manifest(Protocol):
    """Records accepted shipments for the carrier."""

    async def append(self, shipment: Shipment) -> None:
        """Return once the shipment is on disk. Raise ManifestUnavailable when it can't be written."""


@dataclass(slots=True)
class _KeyUse:
    fingerprint: bytes
    recorded: bool = False


class Shipper:
    """Accepts parcels, at most once per idempotency key.

    The tracking id derives from the key, so a repeated request is the same shipment in every process and after a
    restart. In addition, each process stores the latest keys, to reject a key that is reused for a different parcel.
    """

    def __init__(self, manifest: Manifest, *, max_keys: int = 10_000) -> None:
        self._manifest = manifest
        self._max_keys = max_keys
        self._key_uses: OrderedDict[str, _KeyUse] = OrderedDict()

    async def ship(self, parcel: Parcel, key: str | None) -> Shipment:
        """Record a shipment of the parcel. Raise IdempotencyKeyReused or ManifestUnavailable."""
        if key is None:
            shipment = Shipment(_tracking_id(uuid.uuid4()), None, parcel)
            await self._manifest.append(shipment)
            return shipment
        shipment = Shipment(_tracking_id(uuid.uuid5(_TRACKING_ID_NAMESPACE, key)), key, parcel)
        key_use = self._use_key(key, parcel.fingerprint)
        if not key_use.recorded:
            await self._manifest.append(shipment)
            key_use.recorded = True
        return shipment

    def _use_key(self, key: str, fingerprint: bytes) -> _KeyUse:
        key_use = self._key_uses.setdefault(key, _KeyUse(fingerprint))
        if key_use.fingerprint != fingerprint:
            raise IdempotencyKeyReused
        if len(self._key_uses) > self._max_keys:
            self._key_uses.popitem(last=False)
        return key_use


def _tracking_id(number: uuid.UUID) -> str:
    return f"SHOP-{number.hex.upper()}"
