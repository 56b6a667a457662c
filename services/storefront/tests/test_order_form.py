import pytest

from shop_lab.world.storefront import CARD, order_fields
from storefront_service import order_form

INVALID = {
    "email": ["", "ada", "ada@", "ada@example.com, bob@example.com", "x" * 250 + "@example.com"],
    "street_address": ["", " ", "x" * 257, "1 Harbour\x00Street"],
    "city": ["", "x" * 257, "Ham\nburg"],
    "country": ["", "x" * 257],
    "zip_code": ["", "SW1A 1AA", "²", "-1", "9" * 10],
    "state": ["x" * 257, "\x7f"],
    "credit_card_number": ["", "4242", "4" * 20, "\uff14" * 16, "4242x4242x4242x4242"],
    "credit_card_cvv": ["", "12", "12345", "12a"],
    "credit_card_expiration_month": ["", "0", "13", "x"],
    "credit_card_expiration_year": ["", "1999", "99", "20999"],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in INVALID.items() for value in values])
def test_an_invalid_field_has_a_message(name: str, value: str) -> None:
    with pytest.raises(order_form.InvalidForm) as raised:
        order_form.parse({**order_fields(), name: value})
    assert raised.value.messages.keys() == {name}


def test_a_form_is_parsed_without_the_spaces_around_its_fields() -> None:
    fields = {name: f" {value} " for name, value in order_fields().items()} | {"key": "key-1"}
    form = order_form.parse(fields)
    assert (form.city, form.zip_code, form.card_number, form.month) == ("Hamburg", 20095, CARD, 12)


def test_every_invalid_field_has_a_message() -> None:
    with pytest.raises(order_form.InvalidForm) as raised:
        order_form.parse({"key": "key-1", "email": "ada"})
    required = {*order_fields()} - {"key", "state"}
    assert raised.value.messages.keys() == required


def test_a_form_shows_no_card_data() -> None:
    form = order_form.parse(order_fields())
    assert CARD not in repr(form)
    assert "123" not in repr(form)


def test_an_error_shows_no_value() -> None:
    with pytest.raises(order_form.InvalidForm) as raised:
        order_form.parse({**order_fields(), "credit_card_cvv": "98765"})
    assert "98765" not in f"{raised.value}{raised.value.messages}"
