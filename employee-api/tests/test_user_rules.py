import random

import pytest

from employee_api.users.rules import COLORS, avatar, email_key, pick_color


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
