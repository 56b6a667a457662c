import random
from datetime import UTC, datetime, timedelta

import pytest

from employee_api.fields import parse_id
from employee_api.months import month_range
from employee_api.users.rules import COLORS, avatar, email_key, pick_color


@pytest.mark.parametrize(
    "month",
    [
        "2026-13",
        "2026-00",
        "2026-1",
        "0000-01",
        "\uff12\uff10\uff12\uff16-\uff10\uff11",
        "2026-01\n",
        " 2026-01",
        "",
        "26-01",
    ],
)
def test_an_invalid_month_is_rejected(month: str) -> None:
    with pytest.raises(ValueError, match="month|year"):
        month_range(month)


@pytest.mark.parametrize("month", ["2026-12", "2024-02", "0001-01"])
def test_a_month_ends_a_microsecond_before_the_next_one_begins(month: str) -> None:
    first, last = month_range(month)
    following = last + timedelta(microseconds=1)
    assert (first.day, following.day, following.hour) == (1, 1, 0)
    assert (first.month % 12) + 1 == following.month


def test_the_last_representable_month_ends_with_the_last_timestamp() -> None:
    assert month_range("9999-12")[1] == datetime.max.replace(tzinfo=UTC)


@pytest.mark.parametrize(
    "text", ["", "1", "{cf828672-551f-4468-b46b-28bfc63de735}", "cf828672551f4468b46b28bfc63de735", "' OR 1=1 --"]
)
def test_only_the_canonical_form_of_an_id_is_parsed(text: str) -> None:
    assert parse_id(text) is None


def test_an_id_may_be_in_upper_case() -> None:
    text = "cf828672-551f-4468-b46b-28bfc63de735"
    assert str(parse_id(text.upper())) == text


@pytest.mark.parametrize(
    ("name", "initials"),
    [
        ("Ada Lovelace", "AL"),
        ("ada king noel lovelace", "AK"),
        ("ada", "A"),
        ("  ada   lovelace ", "AL"),
        ("ada\tlovelace", "A"),  # only spaces separate words
        ("ßa", "SS"),  # cut first, upper case after
        ("émile zola", "ÉZ"),
        (" ", ""),
    ],
)
def test_an_avatar_is_the_initials_of_the_first_two_words(name: str, initials: str) -> None:
    assert avatar(name) == initials


def test_every_color_is_picked_eventually() -> None:
    randomness = random.Random(1)  # noqa: S311 - a seed makes the test repeatable
    assert {pick_color(randomness) for _ in range(200)} == set(COLORS)


@pytest.mark.parametrize("spelling", ["Ada@Example.COM", "ada@example.com", "ADA@EXAMPLE.COM"])
def test_emails_are_compared_without_case(spelling: str) -> None:
    assert email_key(spelling) == "ada@example.com"


@pytest.mark.parametrize("spelling", [" ada@example.com", "ada@example.com\n", "\u00a0ada@example.com\t"])
def test_emails_are_compared_without_white_space_around_them(spelling: str) -> None:
    assert email_key(spelling) == "ada@example.com"


def test_emails_are_compared_without_unicode_composition() -> None:
    assert email_key("e\u0301mile@x") == email_key("\u00e9mile@x")
