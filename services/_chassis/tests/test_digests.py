from dataclasses import dataclass

from chassis.values.digests import digest, items_digest


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
