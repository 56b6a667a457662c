import pytest

from ad_service.domain import Ad, Inventory

PAN = Ad("/product/pan", "Pans", ("kitchen", "Gifts"))
KNIFE = Ad("/product/knife", "Knives", ("KITCHEN",))
TENT = Ad("/product/tent", "Tents", ("outdoors", "Straße"))
HOUSE = Ad("/", "Free shipping")

INVENTORY = Inventory([PAN, HOUSE, KNIFE, TENT])


def test_a_key_selects_all_ads_of_its_context() -> None:
    assert INVENTORY.select(["kitchen"]) == [PAN, KNIFE]


@pytest.mark.parametrize("key", ["OUTDOORS", "Outdoors", " outdoors ", "STRASSE"])
def test_case_and_surrounding_spaces_do_not_matter(key: str) -> None:
    assert INVENTORY.select([key]) == [TENT]


def test_ads_are_in_the_order_of_the_keys_and_each_is_returned_once() -> None:
    assert INVENTORY.select(["outdoors", "gifts", "kitchen", "KITCHEN"]) == [TENT, PAN, KNIFE]


@pytest.mark.parametrize("keys", [[], ["submarines"], ["", " "]])
def test_house_ads_are_returned_when_nothing_matches(keys: list[str]) -> None:
    assert INVENTORY.select(keys) == [HOUSE]


def test_ads_without_a_house_ad_are_rejected() -> None:
    with pytest.raises(ValueError, match="without contexts"):
        Inventory([PAN])
