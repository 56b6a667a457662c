"""Quotes and shipments: what may be sent, what it costs, and the one tracking id of each shipment."""

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
_SHIPMENTS = uuid.UUID("b0a1d0de-5d5c-4d6b-8a52-3d0c1f7f5b1e")


class ManifestUnavailable(Unavailable):
    """The shipment could not be written down, so it was not accepted."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a parcel goes. A country is a name, or its ISO 3166 code of two or three letters."""

    street_address: str
    city: str
    state: str
    country: str
    zip_code: int


@dataclass(frozen=True, slots=True)
class Item:
    """A product and how many pieces of it."""

    product_id: str
    quantity: int


@dataclass(frozen=True, slots=True)
class Parcel:
    """Items for an address. There is only one way to make one, so a quote given is a shipment accepted.

    Raises InvalidArgument, with the field's path, for what no carrier takes.
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
            raise InvalidArgument.field("items", f"must be at most {MAX_PIECES} pieces in all")

    @property
    def pieces(self) -> int:
        """How many pieces there are in all."""
        return sum(item.quantity for item in self.items)

    @property
    def digest(self) -> bytes:
        """Equal for equal parcels, and for no others."""
        return hashlib.blake2b(repr(self).encode(), digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class Bracket:
    """The price of a parcel of up to so many pieces."""

    pieces: int
    price: Money


@dataclass(frozen=True, slots=True)
class Zone:
    """What parcels to some countries cost.

    Attributes:
        brackets: at least one, by rising number of pieces and never falling price.
        further_piece: added for each piece that the last bracket does not hold.
    """

    name: str
    brackets: Sequence[Bracket]
    further_piece: Money

    def price(self, pieces: int) -> Money:
        """The price of a parcel of so many pieces: never less than that of a smaller one."""
        for bracket in self.brackets:
            if pieces <= bracket.pieces:
                return bracket.price
        return self.brackets[-1].price + self.further_piece * (pieces - self.brackets[-1].pieces)


@dataclass(frozen=True, slots=True)
class RateCard:
    """All zones.

    Attributes:
        zones: by country, as `country_key` spells it.
        elsewhere: the zone of every other country, so that no address is without a price.
    """

    zones: Mapping[str, Zone]
    elsewhere: Zone

    def quote(self, parcel: Parcel) -> Money:
        """The price of sending a parcel to its address."""
        return self.zones.get(country_key(parcel.address.country), self.elsewhere).price(parcel.pieces)


def country_key(country: str) -> str:
    """Spell a country in one way: in lower case, without dots and with single blanks (`U.S.` is `us`)."""
    return " ".join(country.casefold().replace(".", "").split())


@dataclass(frozen=True, slots=True)
class Shipment:
    """A parcel that was accepted; `key` is None when the caller gave none."""

    tracking_id: str
    key: str | None
    parcel: Parcel


class Manifest(Protocol):
    """Where accepted shipments are written down for the carrier."""

    async def append(self, shipment: Shipment) -> None:
        """Return when the shipment is on disk; raises ManifestUnavailable if it can't be."""


@dataclass(slots=True)
class _Seen:
    digest: bytes
    written_down: bool = False


class Dispatch:
    """Accepts parcels.

    Each process remembers the last keys it saw, to find a key that comes with another parcel; what makes a repeated
    request the same shipment, also in another process and after a restart, is the tracking id, which its key gives.
    """

    def __init__(self, manifest: Manifest, *, remembered_keys: int = 10_000) -> None:
        self._manifest = manifest
        self._remembered_keys = remembered_keys
        self._seen: OrderedDict[str, _Seen] = OrderedDict()

    async def ship(self, parcel: Parcel, key: str | None) -> Shipment:
        """Accept a parcel, once for each key. Raises IdempotencyKeyReused, ManifestUnavailable."""
        if key is None:
            shipment = Shipment(_tracking_id(uuid.uuid4()), None, parcel)
            await self._manifest.append(shipment)
            return shipment
        shipment = Shipment(_tracking_id(uuid.uuid5(_SHIPMENTS, key)), key, parcel)
        seen = self._recall(key, parcel.digest)
        if not seen.written_down:
            await self._manifest.append(shipment)
            seen.written_down = True
        return shipment

    def _recall(self, key: str, digest: bytes) -> _Seen:
        seen = self._seen.setdefault(key, _Seen(digest))
        if seen.digest != digest:
            raise IdempotencyKeyReused
        if len(self._seen) > self._remembered_keys:
            self._seen.popitem(last=False)
        return seen


def _tracking_id(number: uuid.UUID) -> str:
    return f"SHOP-{number.hex.upper()}"
