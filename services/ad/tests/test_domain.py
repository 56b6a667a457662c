import pytest

from ad_service.domain import Ad, Inventory

PAN = Ad("/product/pan", "Pans", ("kitchen", "Gifts"))
KNIFE = Ad("/product/knife", "Knives", ("KITCHEN",))
TENT = Ad("/product/tent", "Tents", ("outdoors", "Straße"))
HOUSE = Ad("/", "Free shipping")

INVENTORY = Inventory([PAN, HOUSE, KNIFE, TENT])


@pytest.mark.parametrize(
    ("keys", "selected"),
    [
        (["kitchen"], [PAN, KNIFE]),
        # Neither case nor surrounding spaces matter.
        *(([key], [TENT]) for key in ("OUTDOORS", "Outdoors", " outdoors ", "STRASSE")),
        (["outdoors", "gifts", "kitchen", "KITCHEN"], [TENT, PAN, KNIFE]),
        # No context matches.
        *((keys, [HOUSE]) for keys in ([], ["submarines"], ["", " "])),
    ],
)
def test_all_ads_of_each_context_are_selected_once_in_the_order_of_the_keys_or_else_the_house_ads(
    keys: list[str], selected: list[Ad]
) -> None:
    assert INVENTORY.select(keys) == selected


def test_ads_without_a_house_ad_are_rejected() -> None:
    with pytest.raises(ValueError, match="no contexts"):
        Inventory([PAN])
