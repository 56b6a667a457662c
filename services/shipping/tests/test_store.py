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
        *(
            ({"brackets": [*HOME["brackets"], {"pieces": pieces, "price_usd": price}]}, "must rise")
            for pieces, price in ((1, "30.00"), (2, "19.99"))
        ),
        ({"further_piece_usd": "Infinity"}, r"`further_piece_usd` must be .* at `\$\.zones\[0\]`"),
        ({"further_piece_usd": None}, r"\$\.zones\[0\]\.further_piece_usd`"),
        ({"surcharge": "1.00"}, r"`surcharge` - at `\$\.zones\[0\]`"),
    ],
)
def test_an_invalid_zone_is_rejected_with_the_name_of_its_field(zone: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        parse_rate_card(raw(HOME | zone, ELSEWHERE))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (
            raw(HOME, HOME | {"name": "away", "countries": ["u.s."]}, ELSEWHERE),
            "'us' is in two zones: 'home' and 'away'",
        ),
        *((raw(*zones), "without countries") for zones in ([HOME], [ELSEWHERE, ELSEWHERE], [])),
        *((content, "JSON|truncated|zones|object") for content in (b"", b"[", b"[]", b"\xff", b'{"zones": {}}')),
    ],
)
def test_a_rate_card_that_is_malformed_or_without_one_zone_for_each_country_is_rejected(
    content: bytes, problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_rate_card(content)
