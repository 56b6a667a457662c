import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recommendation_service.domain import (
    Catalog,
    Product,
    Purchases,
    Ranking,
    check_request,
    recommend,
    same_category,
    same_price_band,
)
from shop_kit.failing import rejecting

KITCHEN = [Product(f"kitchen-{number}", ("kitchen",), price=20 * number) for number in range(8)]
OUTDOORS = [Product(f"outdoors-{number}", ("outdoors",)) for number in range(8)]
KNIFE = Product("knife", ("kitchen", "outdoors"))
POEM = Product("poem", ())
CATALOG = Catalog([*KITCHEN, *OUTDOORS, KNIFE, POEM])
SMALL = Catalog([*KITCHEN[:3], *OUTDOORS[:6]])
PURCHASES = Purchases(
    [{"poem", "knife"}, {"poem", "knife", "kitchen-1"}, {"poem", "withdrawn"}, {"knife", "outdoors-1", "outdoors-2"}]
)
RANKINGS = [same_category, PURCHASES.rank, same_price_band]


def recommended(
    *product_ids: str, user_id: str = "ada", catalog: Catalog = CATALOG, rank: Ranking = same_category
) -> list[str]:
    return recommend(catalog, user_id, product_ids, rank)


def test_v1_chooses_what_the_service_chose_before_it_had_versions() -> None:
    expected = ["kitchen-1", "kitchen-2", "outdoors-5", "outdoors-0", "outdoors-1"]
    assert recommended("kitchen-0", "submarine", user_id="", catalog=SMALL) == expected
    assert recommended("knife") == ["kitchen-0", "outdoors-1", "outdoors-3", "kitchen-3", "outdoors-7"]


def test_v2_recommends_first_what_was_bought_most_often_with_the_given_products() -> None:
    assert recommended("poem", rank=PURCHASES.rank)[:2] == ["knife", "kitchen-1"]
    chosen = recommended("poem", "kitchen-1", rank=PURCHASES.rank)
    assert chosen[0] == "knife"
    assert set(recommended("knife", rank=PURCHASES.rank)[1:4]) == {"kitchen-1", "outdoors-1", "outdoors-2"}


@pytest.mark.parametrize(
    ("given_id", "band"),
    [("kitchen-1", {"kitchen-0"}), ("kitchen-3", {"kitchen-4"}), ("kitchen-5", {"kitchen-6", "kitchen-7"})],
)
def test_v3_recommends_first_what_is_in_the_same_price_band(given_id: str, band: set[str]) -> None:
    # Prices are 0, 20, 40, …; price bands begin at 0, 25, 50 and 100 dollars.
    chosen = recommended(given_id, rank=same_price_band, catalog=Catalog(KITCHEN))
    assert set(chosen[: len(band)]) == band


def test_recommendations_draw_on_every_category_of_a_product() -> None:
    chosen = {product_id for user in range(50) for product_id in recommended("knife", user_id=str(user))}
    assert {product_id.split("-")[0] for product_id in chosen} == {"kitchen", "outdoors"}


def test_an_empty_catalog_recommends_nothing() -> None:
    assert recommended("pan", catalog=Catalog([])) == []


def test_recommendations_depend_on_the_user_and_not_on_order_or_repetition_of_the_given_products() -> None:
    assert recommended("knife", "poem", "poem") == recommended("poem", "knife")
    assert len({tuple(recommended("knife", user_id=str(user))) for user in range(20)}) > 10


def test_recommendations_are_the_same_in_every_process() -> None:
    program = (
        "from recommendation_service.domain import *\n"
        "catalog = Catalog(Product(str(number), ('a',)) for number in range(100))\n"
        "together = Purchases([[str(number) for number in range(50)]])\n"
        "for rank in (same_category, together.rank, same_price_band):\n"
        "    print(recommend(catalog, 'ada', ['7'], rank))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


ANY_ID = st.sampled_from([*CATALOG.ids, "submarine", ""])


@given(st.lists(ANY_ID, max_size=20) | st.just(["kitchen-1"] * 1000), st.text(max_size=5), st.sampled_from(RANKINGS))
def test_five_distinct_products_are_recommended_if_so_many_others_are_left(
    product_ids: list[str], user_id: str, rank: Ranking
) -> None:
    chosen = recommended(*product_ids, user_id=user_id, rank=rank)
    left = set(CATALOG.ids) - set(product_ids)
    assert set(chosen) <= left
    assert len(set(chosen)) == len(chosen) == min(5, len(left))


@pytest.mark.parametrize(
    ("user_id", "product_ids", "field"), [("ada", ["pan"] * 1001, "product_ids"), ("x" * 129, [], "user_id")]
)
def test_too_long_input_is_rejected(user_id: str, product_ids: list[str], field: str) -> None:
    with rejecting(field):
        check_request(user_id, product_ids)
