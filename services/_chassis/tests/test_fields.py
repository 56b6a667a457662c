import pytest

from chassis.errors import InvalidArgument
from chassis.values import fields


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
