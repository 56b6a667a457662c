import pytest
from google.protobuf.message import Message

from chassis.errors import InvalidArgument
from chassis.values import fields
from chassis.values.text import check_text
from shop import ad_pb2, cart_pb2, checkout_pb2, payment_pb2, shipping_pb2
from shop.address_pb2 import Address
from shop_internal import ordered_cart_pb2


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (ad_pb2.AdRequest(context_keys=["a", "b\r"]), r"context_keys\[1\]"),
        (checkout_pb2.PlaceOrderRequest(address=Address(city="\x00")), r"address\.city"),
        (shipping_pb2.GetQuoteRequest(items=[cart_pb2.CartItem(product_id="\x1f")]), r"items\[0\]\.product_id"),
        (Address(street_address="a\rb"), "street_address"),
    ],
)
def test_a_control_character_is_found_in_every_kind_of_field(message: Message, field: str) -> None:
    with pytest.raises(InvalidArgument, match=rf"^{field}: must not contain control characters$"):
        check_text(message)


@pytest.mark.parametrize("character", ["\x80", "\x85", "\x9b", "\u2028", "\u2029", "\u202e", "\u2066", "\u2069"])
def test_characters_that_steer_a_terminal_or_reorder_text_are_rejected_and_no_others(character: str) -> None:
    accepted = Address(city="Zürich \u200fתל אביב\u200e 東京 😀 ~", street_address="1 Long Road\r\nApt 4\n\tBack yard")
    check_text(accepted)
    for rejected in (Address(city=character), Address(street_address=f"1 {character} Road")):
        with pytest.raises(InvalidArgument, match="must not contain control characters"):
            check_text(rejected)


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (ad_pb2.AdRequest(context_keys=["a", "4242.4242.4242.4242"]), r"context_keys\[1\]"),
        (checkout_pb2.PlaceOrderRequest(address=Address(city="٤٢٤٢-٤٢٤٢-٤٢٤٢-٤٢٤٢")), r"address\.city"),
        (cart_pb2.GetCartRequest(user_id="a4242424242424242b"), "user_id"),
    ],
)
def test_only_fields_for_card_numbers_or_random_digits_may_contain_one(message: Message, field: str) -> None:
    check_text(payment_pb2.CreditCardInfo(credit_card_number="4242 4242 4242 4242"))
    check_text(ordered_cart_pb2.RemoveOrderedRequest(etag="4242424242424242"))
    with pytest.raises(InvalidArgument, match=rf"^{field}: must not contain a card number$"):
        check_text(message)


def test_a_required_text_is_not_empty_and_its_length_counts_code_points() -> None:
    assert fields.require_text("😀" * 8, "name", max_length=8)
    with pytest.raises(InvalidArgument, match="name: must have at most 8 characters"):
        fields.require_text("😀" * 9, "name", max_length=8)
    with pytest.raises(InvalidArgument, match="name: must not be empty"):
        fields.require_text("", "name", max_length=8)
    assert fields.limit_text("", "name", max_length=8) == ""


@pytest.mark.parametrize(
    "text", ["", " ", "\t\n", "\u00a0\u3000", "x" * 9, " " * 9, "\u200b", "\u00ad", "\u2800", "\u3164", ".", "-"]
)
def test_words_have_a_visible_letter_or_digit(text: str) -> None:
    with pytest.raises(InvalidArgument, match="name: must"):
        fields.require_words(text, "name", max_length=8)
    assert fields.require_words(" 서울 7 ", "name", max_length=8) == " 서울 7 "


@pytest.mark.parametrize("value", [0, 11])
def test_a_number_outside_its_range_is_rejected(value: int) -> None:
    with pytest.raises(InvalidArgument, match="quantity: must lie between 1 and 10"):
        fields.require_between(value, "quantity", 1, 10)


@pytest.mark.parametrize("key", ["", "a b", "ä", "a" * 256, "a\n"])
def test_an_idempotency_key_is_visible_ascii_of_at_most_255_characters(key: str) -> None:
    with pytest.raises(InvalidArgument, match="idempotency-key"):
        fields.parse_idempotency_key(key)
    assert fields.parse_idempotency_key("~" * 255)
