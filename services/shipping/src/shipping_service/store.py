"""Reads the rate card from its file, and writes down shipments in another one.

The rate card is a JSON object: `zones`, each with a `name`, the `countries` it is for (absent: every country that no
other zone names), `brackets` of `pieces` and `price_usd`, and the price of each `further_piece_usd` beyond the last.
"""

from decimal import Decimal
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from chassis.money import NANOS_PER_UNIT, Money
from shipping_service.domain import Bracket, RateCard, Zone, country_key

Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=256)]
Price = Annotated[Decimal, Field(ge=0, le=1_000_000, decimal_places=2)]


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Bracket(_Entry):
    pieces: Annotated[int, Field(ge=1)]
    price_usd: Price


class _Zone(_Entry):
    name: Name
    countries: list[Name] | None = None
    brackets: Annotated[list[_Bracket], Field(min_length=1)]
    further_piece_usd: Price

    @model_validator(mode="after")
    def _rises(self) -> Self:
        for lower, upper in zip(self.brackets, self.brackets[1:], strict=False):
            if upper.pieces <= lower.pieces or upper.price_usd < lower.price_usd:
                raise ValueError("the brackets must rise in pieces and never fall in price")
        return self

    def to_domain(self) -> Zone:
        brackets = [Bracket(bracket.pieces, _usd(bracket.price_usd)) for bracket in self.brackets]
        return Zone(self.name, brackets, _usd(self.further_piece_usd))


class _File(_Entry):
    zones: list[_Zone]


def parse_rate_card(raw: bytes) -> RateCard:
    """Turn the file's bytes into the rate card. Raises ValueError that names the zone and the field."""
    file = _File.model_validate_json(raw)
    zones: dict[str, Zone] = {}
    elsewhere = [zone.to_domain() for zone in file.zones if zone.countries is None]
    if len(elsewhere) != 1:
        raise ValueError("one zone, and only one, must be without countries: it is for all others")
    for entry in file.zones:
        zone = entry.to_domain()
        for country in map(country_key, entry.countries or ()):
            if zones.setdefault(country, zone) is not zone:
                raise ValueError(f"{country!r} is in two zones: {zones[country].name!r} and {zone.name!r}")
    return RateCard(zones, elsewhere[0])


def _usd(price: Decimal) -> Money:
    return Money("USD", int(price * NANOS_PER_UNIT))
