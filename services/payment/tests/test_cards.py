import re
from collections.abc import Collection
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chassis.errors import InvalidArgument
from payment_service.cards import Brand, Card, CardNumberInvalid, Decline, brand_of, check_format, decline_reason

TODAY = date(2026, 11, 30)
ALL_BRANDS = frozenset(Brand)


def card(number: str = "4242424242424242", cvv: int = 123, year: int = 2030, month: int = 11) -> Card:
    return Card(number, cvv, year, month)


@pytest.mark.parametrize(
    "number",
    ["4242424242424242", "4242 4242 4242 4242", "4242-4242-4242-4242", " 4242-42424242 4242 ", "6304000000000000"],
)
def test_a_number_may_be_separated_by_spaces_and_hyphens(number: str) -> None:
    check_format(card(number), "credit_card")


@pytest.mark.parametrize(
    "number",
    [
        "",
        "4242",
        "00000000000",  # eleven digits
        "0" * 20,
        "4242424242424241",  # a wrong check digit
        "4242.4242.4242.4242",
        "4242_4242_4242_4242",
        "4242\u00a04242\u00a04242\u00a04242",
        "\uff14\uff12" * 8,  # digits, but full-width ones
        "\u00b2" * 16,
        "+4242424242424242",
        "4242424242424242\n",
        "x" * 100_000,
    ],
)
def test_an_invalid_card_number_is_refused_with_its_field(number: str) -> None:
    with pytest.raises(CardNumberInvalid) as refused:
        check_format(card(number), "credit_card")
    assert refused.value.violations[0].field == "credit_card.credit_card_number"
    assert refused.value.reason == "CARD_NUMBER_INVALID"


@pytest.mark.parametrize(
    ("broken", "field"),
    [
        (card(month=0), "credit_card_expiration_month"),
        (card(month=13), "credit_card_expiration_month"),
        (card(month=-1), "credit_card_expiration_month"),
        (card(year=30), "credit_card_expiration_year"),
        (card(year=1999), "credit_card_expiration_year"),
        (card(year=2100), "credit_card_expiration_year"),
        (card(year=-2030), "credit_card_expiration_year"),
        (card(cvv=-1), "credit_card_cvv"),
        (card(cvv=10_000), "credit_card_cvv"),
    ],
)
def test_a_field_out_of_range_is_refused_with_its_path(broken: Card, field: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        check_format(broken, "credit_card")
    assert refused.value.violations[0].field == f"credit_card.{field}"


@pytest.mark.parametrize("valid", [card(cvv=0), card(cvv=12), card(cvv=9999), card(month=1), card(month=12)])
def test_every_possible_security_code_and_month_is_valid(valid: Card) -> None:
    check_format(valid, "credit_card")


@pytest.mark.parametrize(
    ("number", "brand"),
    [
        ("4222222222222", Brand.VISA),
        ("4242424242424242", Brand.VISA),
        ("4" + "0" * 18, Brand.VISA),
        ("4" + "0" * 14, None),  # no Visa card has fifteen digits
        ("50" + "0" * 14, None),
        ("51" + "0" * 14, Brand.MASTERCARD),
        ("5555555555554444", Brand.MASTERCARD),
        ("55" + "9" * 14, Brand.MASTERCARD),
        ("56" + "0" * 14, None),
        ("2220" + "9" * 12, None),
        ("2221" + "0" * 12, Brand.MASTERCARD),
        ("2720" + "9" * 12, Brand.MASTERCARD),
        ("2721" + "0" * 12, None),
        ("51" + "0" * 13, None),
        ("378282246310005", Brand.AMEX),
        ("341111111111111", Brand.AMEX),
        ("36" + "0" * 13, Brand.DINERS),
        ("6011111111111117", Brand.DISCOVER),
        ("65" + "0" * 14, Brand.DISCOVER),
        ("643" + "0" * 13, None),
        ("3566002020360505", Brand.JCB),
        ("30569309025904", Brand.DINERS),
        ("9" * 16, None),
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
        # A number of no known brand is declined even if all brands are accepted.
        (card("9" * 16), ALL_BRANDS, TODAY, Decline.BRAND_NOT_ACCEPTED),
    ],
)
def test_expired_cards_and_other_brands_are_declined(
    checked: Card, accepted: Collection[Brand], today: date, declined: Decline | None
) -> None:
    assert decline_reason(checked, brand_of(checked.digits), accepted, today) is declined


def test_number_and_security_code_are_not_in_the_repr() -> None:
    shown = repr(card(cvv=987))
    assert "4242" not in shown
    assert "987" not in shown


@given(st.text(st.characters(codec="utf-8"), max_size=40) | st.from_regex(r"\A[0-9 -]{8,24}\Z"))
def test_no_error_repeats_digits_of_the_card_number(number: str) -> None:
    refused = refusal(number)
    assert refused is None or not re.search(r"[0-9]{3}", f"{refused} {refused.violations}")


def refusal(number: str) -> CardNumberInvalid | None:
    try:
        check_format(card(number), "credit_card")
    except CardNumberInvalid as refused:
        return refused
    return None
