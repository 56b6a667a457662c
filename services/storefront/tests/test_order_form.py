import json
from pathlib import Path

import pytest

from chassis.values.countries import postal_formats
from shop_kit.storefront import CARD, order_fields
from storefront_service import order_form

RATE_CARD = Path(__file__).parents[2] / "shipping/src/shipping_service/data/rate-card.json"
INVALID = {
    "email": ["", "ada", f"{CARD}@example.com"],
    "street_address": ["", " ", "x" * 257, "1 Harbour\x00Street", f"1 {CARD}"],
    "city": ["", "x" * 257, "Ham\nburg", "Ham\u202eburg", "Ham\x9bburg", "4242 4242-4242\u00a04242"],
    "country": ["", "x" * 257, "Atlantis"],
    "zip_code": ["", "SW1A 1AA", "²", "1.5", "9" * 10],
    "state": ["x" * 257, "\x7f", CARD],
    "credit_card_number": ["", "4242", "4242424242424241", "4" * 20, "\uff14" * 16, "4242x4242x4242x4242"],
    "credit_card_cvv": ["", "12", "12345", "12a"],
    "credit_card_expiration_month": ["", "0", "13", "x"],
    "credit_card_expiration_year": ["", "1999", "99", "20999"],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in INVALID.items() for value in values])
def test_an_invalid_field_has_a_problem_without_its_value(name: str, value: str) -> None:
    with pytest.raises(order_form.InvalidForm) as raised:
        order_form.parse({**order_fields(), name: value})
    assert raised.value.problems.keys() == {name}
    assert len(value) < 5 or value not in f"{raised.value}{raised.value.problems}"


def test_a_form_is_parsed_without_the_spaces_around_its_fields_and_shows_no_card_data() -> None:
    fields = {name: f" {value} " for name, value in order_fields().items()} | {"key": "key-1"}
    form = order_form.parse(fields)
    assert (form.address.city, form.address.zip_code, form.card.number, form.card.month) == ("Hamburg", 20095, CARD, 12)
    assert (CARD in repr(form), "123" in repr(form)) == (False, False)


@pytest.mark.parametrize("mark", [" ", "-", "\u00a0", "\u2009", "\u202f", "\u2011", "\u2013", "\u2212", "\u200b"])
def test_numbers_are_accepted_as_they_are_pasted(mark: str) -> None:
    pasted = mark.join(("\u202d4242", "4242", "4242", "4242\ufeff"))
    form = order_form.parse({**order_fields(), "credit_card_number": pasted, "zip_code": f"20{mark}095"})
    assert (form.card.number, form.address.zip_code) == (CARD, 20095)


@pytest.mark.parametrize(("country", "code"), [("United Kingdom", "SW1A 1AA"), ("Canada", "K1A 0B1")])
def test_a_code_with_letters_may_be_part_of_the_city(country: str, code: str) -> None:
    with pytest.raises(order_form.InvalidForm) as raised:
        order_form.parse({**order_fields(), "country": country, "zip_code": code})
    assert "Leave it empty, and add your code to the city" in raised.value.problems["zip_code"]
    form = order_form.parse({**order_fields(), "country": country, "zip_code": "", "city": f"Anywhere {code}"})
    assert (form.address.zip_code, form.address.city) == (0, f"Anywhere {code}")


@pytest.mark.parametrize("country", ["Germany", "United States"])
@pytest.mark.parametrize("code", ["", "SW1A 1AA"])
def test_a_code_of_digits_is_required_where_all_codes_are(country: str, code: str) -> None:
    with pytest.raises(order_form.InvalidForm) as raised:
        order_form.parse({**order_fields(), "country": country, "zip_code": code})
    assert raised.value.problems == {"zip_code": "Enter your postal code, which has digits only."}


def test_every_country_of_the_rate_card_is_on_the_list() -> None:
    named = {name for zone in json.loads(RATE_CARD.read_text())["zones"] for name in zone.get("countries", ())}
    assert [name for name in named if postal_formats(name) is None] == []


def test_before_the_total_is_shown_no_card_is_needed_and_an_international_domain_is_encoded() -> None:
    fields = {name: text for name, text in order_fields().items() if name not in order_form.CARD_FIELDS}
    form = order_form.parse({**fields, "email": "ada@m\u00fcnchen.example"}, with_card=False)
    assert (form.address.city, form.card.number, form.card.cvv) == ("Hamburg", "", 0)
    assert form.email == "ada@xn--mnchen-3ya.example"


def test_every_invalid_field_has_a_problem() -> None:
    with pytest.raises(order_form.InvalidForm) as raised:
        order_form.parse({"key": "key-1", "email": "ada"})
    required = {*order_fields()} - {"key", "total", "state", "zip_code"}
    assert raised.value.problems.keys() == required
