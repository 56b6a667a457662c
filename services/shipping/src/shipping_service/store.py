"""Parses the rate card: a JSON object with a list of `zones`.

Each zone has a `name`, a list of `countries`, `brackets` with `pieces` and `price_usd`, and `further_piece_usd`, the
price of each piece beyond the last bracket. Exactly one zone has no `countries`: it covers all other countries.
"""

from decimal import Decimal
from typing import Annotated

from msgspec import Meta, Struct, json

from chassis.values.countries import normalize_country
from chassis.values.money import NANOS_PER_UNIT, Money, require_decimal
from shipping_service.domain import Bracket, RateCard, Zone

Name = Annotated[str, Meta(pattern=r"\S", max_length=256)]


class _Bracket(Struct, frozen=True, forbid_unknown_fields=True):
    pieces: Annotated[int, Meta(ge=1)]
    price_usd: Decimal

    def __post_init__(self) -> None:
        _require_price("price_usd", self.price_usd)


class _Zone(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: Name
    countries: list[Name] | None = None
    brackets: Annotated[list[_Bracket], Meta(min_length=1)]
    further_piece_usd: Decimal

    def __post_init__(self) -> None:
        _require_price("further_piece_usd", self.further_piece_usd)
        for lower, upper in zip(self.brackets, self.brackets[1:], strict=False):
            if upper.pieces <= lower.pieces or upper.price_usd < lower.price_usd:
                raise ValueError("the brackets must rise in pieces and never fall in price")

    def to_domain(self) -> Zone:
        brackets = [Bracket(bracket.pieces, _usd(bracket.price_usd)) for bracket in self.brackets]
        return Zone(self.name.strip(), brackets, _usd(self.further_piece_usd))


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    zones: list[_Zone]


def parse_rate_card(raw: bytes) -> RateCard:
    """Parse the rate card. Raise ValueError with a message that says what is invalid."""
    file = json.decode(raw, type=_File)
    zones: dict[str, Zone] = {}
    default_zones = [zone.to_domain() for zone in file.zones if zone.countries is None]
    if len(default_zones) != 1:
        raise ValueError("there must be exactly one zone without countries, which covers all others")
    for entry in file.zones:
        zone = entry.to_domain()
        for country in map(normalize_country, entry.countries or ()):
            if zones.setdefault(country, zone) is not zone:
                raise ValueError(f"{country!r} is in two zones: {zones[country].name!r} and {zone.name!r}")
    return RateCard(zones, default_zones[0])


def _require_price(field: str, price: Decimal) -> None:
    require_decimal(field, price, lowest=Decimal(0), highest=Decimal(1_000_000), places=2)


def _usd(price: Decimal) -> Money:
    return Money("USD", int(price * NANOS_PER_UNIT))
