import hmac
from dataclasses import dataclass

import pytest

from chassis.values.digests import digest, items_digest
from chassis.values.keys import HmacKeys


@dataclass
class Item:
    product_id: str
    quantity: int


def test_equal_parts_have_equal_digests_in_every_release_and_others_have_others() -> None:
    assert digest("id", 7, b"\x01", Item("mug", 1)).hex() == "cdeb658d"
    assert digest("ab", "c") not in {digest(*other) for other in (("a", "bc"), ("ab", "c", ""), ("ab", 0), ("ab", "C"))}


def test_the_order_of_items_does_not_matter_but_their_quantities_do() -> None:
    mug, pan = Item("mug", 1), Item("pan", 2)
    assert items_digest([mug, pan]) == items_digest([pan, mug])
    assert items_digest([mug, pan]) != items_digest([Item("mug", 2), Item("pan", 1)])


OLD, NEW = "o" * 32, "n" * 32


def test_the_first_key_makes_new_hmacs_and_the_others_are_accepted_by_ids_that_do_not_depend_on_the_position() -> None:
    keys = HmacKeys.parse(f"{NEW},{OLD}")
    assert keys.digests(b"data") == [hmac.digest(key.encode(), b"data", "sha256") for key in (NEW, OLD)]
    assert list(keys.keys) == [HmacKeys.parse(key).current_id for key in (NEW, OLD)]


@pytest.mark.parametrize("text", ["", "too short", f"{NEW},", f"{NEW},too short"])
def test_a_short_key_is_refused_and_no_key_is_quoted(text: str) -> None:
    with pytest.raises(ValueError, match="at least 32 characters") as refused:
        HmacKeys.parse(text)
    assert "too short" not in str(refused.value)
    assert OLD not in repr(HmacKeys.parse(OLD))
