"""Parses the rate card: a JSON object with a list of `zones`.

Each zone has a `name`, a list of `countries`, `brackets` with `pieces` and `price_usd`, and `further_piece_usd`, the
price of each piece beyond the last bracket. Exactly one zone has no `countries`: it covers all other countries.
"""

from msgspec import Struct, json

from chassis.values.countries import normalize_country
from shipping_service.domain import RateCard, Zone


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    zones: list[Zone]


def parse_rate_card(raw: bytes) -> RateCard:
    """Parse the rate card. Raise ValueError with a message that says what is invalid."""
    file = json.decode(raw, type=_File)
    default_zones = [zone for zone in file.zones if zone.countries is None]
    if len(default_zones) != 1:
        raise ValueError("there must be exactly one zone without countries, which covers all others")
    zones: dict[str, Zone] = {}
    for zone in file.zones:
        for country in map(normalize_country, zone.countries or ()):
            if zones.setdefault(country, zone) is not zone:
                raise ValueError(f"{country!r} is in two zones: {zones[country].name!r} and {zone.name!r}")
    return RateCard(zones, default_zones[0])
