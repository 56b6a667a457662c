"""Parses the rate card: a JSON object with a list of `zones`.

Each zone has a `name`, a list of `countries`, `brackets` with `pieces` and `price_usd`, and `further_piece_usd`, the
price of each piece beyond the last bracket. Exactly one zone has no `countries`: it covers all other countries.
"""

from msgspec import Struct, json

from shipping_service.domain import RateCard, Zone


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    zones: list[Zone]


def parse_rate_card(raw: bytes) -> RateCard:
    """Parse the rate card. Raise ValueError with a message that says what is invalid."""
    return RateCard(json.decode(raw, type=_File).zones)
