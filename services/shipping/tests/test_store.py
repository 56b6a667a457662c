import json
from typing import Any

import pytest

from shipping_service.store import parse_rate_card

ELSEWHERE: dict[str, Any] = {
    "name": "elsewhere",
    "brackets": [{"pieces": 1, "price_usd": "20.00"}],
    "further_piece_usd": "2.50",
}
HOME = ELSEWHERE | {"name": "home", "countries": ["US", "United States"]}


def raw(*zones: dict[str, Any]) -> bytes:
    return json.dumps({"zones": zones}).encode()


def test_prices_are_exact() -> None:
    card = parse_rate_card(raw(ELSEWHERE | {"further_piece_usd": "0.10"}))
    assert str(card.default_zone.price(4)) == "20.30 USD"


@pytest.mark.parametrize(
    ("zone", "named"),
    [
        ({"name": ""}, r"\$\.zones\[0\]\.name`"),
        ({"countries": [" "]}, r"\$\.zones\[0\]\.countries\[0\]`"),
        ({"brackets": []}, r"\$\.zones\[0\]\.brackets`"),
        ({"brackets": [{"pieces": 0, "price_usd": "1.00"}]}, r"\$\.zones\[0\]\.brackets\[0\]\.pieces`"),
        *(
            ({"brackets": [{"pieces": 1, "price_usd": price}]}, r"`price_usd` must .* at `\$.zones\[0\].brackets\[0\]`")
            for price in ("-1.00", "1.001", "NaN")
        ),
        ({"further_piece_usd": "Infinity"}, r"`further_piece_usd` must be .* at `\$\.zones\[0\]`"),
        ({"further_piece_usd": None}, r"\$\.zones\[0\]\.further_piece_usd`"),
        ({"surcharge": "1.00"}, r"`surcharge` - at `\$\.zones\[0\]`"),
    ],
)
def test_an_invalid_zone_is_rejected_with_the_name_of_its_field(zone: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        parse_rate_card(raw(HOME | zone, ELSEWHERE))


@pytest.mark.parametrize(("pieces", "price"), [(1, "30.00"), (2, "19.99")])
def test_brackets_that_do_not_rise_are_rejected(pieces: int, price: str) -> None:
    falling = HOME | {"brackets": [*HOME["brackets"], {"pieces": pieces, "price_usd": price}]}
    with pytest.raises(ValueError, match="must rise"):
        parse_rate_card(raw(falling, ELSEWHERE))


def test_a_country_in_two_zones_is_rejected_by_name() -> None:
    with pytest.raises(ValueError, match="'us' is in two zones: 'home' and 'away'"):
        parse_rate_card(raw(HOME, HOME | {"name": "away", "countries": ["u.s."]}, ELSEWHERE))


@pytest.mark.parametrize("zones", [[HOME], [ELSEWHERE, ELSEWHERE], []])
def test_exactly_one_zone_must_have_no_countries(zones: list[dict[str, Any]]) -> None:
    with pytest.raises(ValueError, match="without countries"):
        parse_rate_card(raw(*zones))


@pytest.mark.parametrize("malformed", [b"", b"[", b"[]", b"\xff", b'{"zones": {}}'])
def test_a_malformed_rate_card_is_rejected(malformed: bytes) -> None:
    with pytest.raises(ValueError, match="JSON|truncated|zones|object"):
        parse_rate_card(malformed)
