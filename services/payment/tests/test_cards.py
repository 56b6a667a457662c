import re
from collections.abc import Collection
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chassis.errors import InvalidArgument
from chassis.values.orders import Card
from payment_service.cards import Brand, CardNumberInvalid, Decline, brand_of, check_format, decline_reason
from shop_kit.failing import rejecting

TODAY = date(2026, 11, 30)
ALL_BRANDS = frozenset(Brand)


def card(number: str = "4242424242424242", cvv: int = 123, year: int = 2030, month: int = 11) -> Card:
    return Card(number, cvv, year, month)


def refusal(checked: Card) -> InvalidArgument | None:
    try:
        check_format(checked, "credit_card")
    except InvalidArgument as refused:
        return refused
    return None


@pytest.mark.parametrize(
    "valid",
    [
        # Spaces and hyphens may separate the digits.
        *map(card, ("4242424242424242", "4242 4242 4242 4242", "4242-4242-4242-4242", " 4242-42424242 4242 ")),
        *(card("6304000000000000"), card(cvv=0), card(cvv=12), card(cvv=9999), card(month=1), card(month=12)),
    ],
)
def test_a_well_formed_number_and_every_possible_security_code_and_month_are_valid(valid: Card) -> None:
    assert refusal(valid) is None


INVALID_NUMBERS = {
    "too few or too many digits": ["", "4242", "0" * 11, "0" * 20, "x" * 100_000],
    "a wrong check digit": ["4242424242424241"],
    "other separators": ["4242.4242.4242.4242", "4242_4242_4242_4242", "4242\u00a04242\u00a04242\u00a04242"],
    "other characters": ["+4242424242424242", "4242424242424242\n", "\u00b2" * 16],
    "full-width digits": ["\uff14\uff12" * 8],
}


@pytest.mark.parametrize("number", [number for numbers in INVALID_NUMBERS.values() for number in numbers])
def test_an_invalid_card_number_is_refused_with_its_field(number: str) -> None:
    with rejecting("credit_card.credit_card_number", CardNumberInvalid) as refused:
        check_format(card(number), "credit_card")
    assert refused.value.reason == "CARD_NUMBER_INVALID"


@pytest.mark.parametrize(
    ("broken", "field"),
    [
        *((card(month=month), "credit_card_expiration_month") for month in (-1, 0, 13)),
        *((card(year=year), "credit_card_expiration_year") for year in (-2030, 30, 1999, 2100)),
        *((card(cvv=cvv), "credit_card_cvv") for cvv in (-1, 10_000)),
    ],
)
def test_a_field_out_of_range_is_refused_with_its_path(broken: Card, field: str) -> None:
    with rejecting(f"credit_card.{field}"):
        check_format(broken, "credit_card")


NUMBERS = {
    Brand.VISA: ["4222222222222", "4242424242424242", "4" + "0" * 18],
    Brand.MASTERCARD: ["51" + "0" * 14, "5555555555554444", "55" + "9" * 14, "2221" + "0" * 12, "2720" + "9" * 12],
    Brand.AMEX: ["378282246310005", "341111111111111"],
    Brand.DINERS: ["36" + "0" * 13, "30569309025904"],
    Brand.DISCOVER: ["6011111111111117", "65" + "0" * 14],
    Brand.JCB: ["3566002020360505"],
}
OF_NO_BRAND = {
    "another length": ["4" + "0" * 14, "51" + "0" * 13],
    "another prefix": [
        "50" + "0" * 14,
        "56" + "0" * 14,
        "2220" + "9" * 12,
        "2721" + "0" * 12,
        "643" + "0" * 13,
        "9" * 16,
    ],
}


@pytest.mark.parametrize(
    ("number", "brand"),
    [
        *((number, brand) for brand, numbers in NUMBERS.items() for number in numbers),
        *((number, None) for numbers in OF_NO_BRAND.values() for number in numbers),
    ],
)
def test_a_brand_is_recognized_by_prefix_and_length(number: str, brand: Brand | None) -> None:
    assert brand_of(number) is brand


@pytest.mark.parametrize(
    ("checked", "accepted", "today", "declined"),
    [
        # A card is valid through the last day of its month.
        (card(year=2026, month=11), ALL_BRANDS, TODAY, None),
        (card(year=2026, month=11), ALL_BRANDS, date(2026, 12, 1), Decline.CARD_EXPIRED),
        (card(year=2026, month=11), ALL_BRANDS, date(2027, 1, 1), Decline.CARD_EXPIRED),
        (card(year=2027, month=1), ALL_BRANDS, TODAY, None),
        (card("378282246310005"), {Brand.VISA}, TODAY, Decline.BRAND_NOT_ACCEPTED),
        # A number that belongs to no known brand is declined even if all brands are accepted.
        (card("9" * 16), ALL_BRANDS, TODAY, Decline.BRAND_NOT_ACCEPTED),
    ],
)
def test_expired_cards_and_other_brands_are_declined(
    checked: Card, accepted: Collection[Brand], today: date, declined: Decline | None
) -> None:
    assert decline_reason(checked, brand_of(checked.digits), accepted, today) is declined


@given(st.text(st.characters(codec="utf-8"), max_size=40) | st.from_regex(r"\A[0-9 -]{8,24}\Z"))
def test_no_error_repeats_digits_of_the_card_number(number: str) -> None:
    refused = refusal(card(number))
    assert refused is None or not re.search(r"[0-9]{3}", f"{refused} {refused.violations}")
