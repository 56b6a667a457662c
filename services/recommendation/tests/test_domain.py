import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chassis.errors import InvalidArgument
from recommendation_service.domain import Catalog, Product, RecommendationRequest, recommend

KITCHEN = [Product(f"kitchen-{number}", ("kitchen",)) for number in range(8)]
OUTDOORS = [Product(f"outdoors-{number}", ("outdoors",)) for number in range(8)]
KNIFE = Product("knife", ("kitchen", "outdoors"))
POEM = Product("poem", ())
CATALOG = Catalog([*KITCHEN, *OUTDOORS, KNIFE, POEM])
SMALL = Catalog([*KITCHEN[:3], *OUTDOORS[:6]])


def recommended(*product_ids: str, user_id: str = "ada", catalog: Catalog = CATALOG) -> list[str]:
    return recommend(catalog, RecommendationRequest(user_id, product_ids))


@pytest.mark.parametrize("given_ids", [(), ("knife",), ("poem",), ("submarine",), ("kitchen-1",) * 1000])
def test_five_products_are_recommended_whatever_is_given(given_ids: tuple[str, ...]) -> None:
    assert len(recommended(*given_ids)) == 5


def test_products_of_the_same_category_come_first() -> None:
    assert all(product_id.startswith("kitchen") or product_id == "knife" for product_id in recommended("kitchen-1"))


def test_unrelated_products_follow_all_the_related_ones() -> None:
    chosen = recommended("kitchen-0", catalog=SMALL)
    assert sorted(chosen[:2]) == ["kitchen-1", "kitchen-2"]
    assert all(product_id.startswith("outdoors") for product_id in chosen[2:])


def test_recommendations_draw_on_every_category_of_a_product() -> None:
    chosen = {product_id for user in range(50) for product_id in recommended("knife", user_id=str(user))}
    assert {product_id.split("-")[0] for product_id in chosen} == {"kitchen", "outdoors"}


def test_an_empty_catalog_recommends_nothing() -> None:
    assert recommended("pan", catalog=Catalog([])) == []


def test_order_and_repetition_of_the_given_products_do_not_matter() -> None:
    assert recommended("knife", "poem", "poem") == recommended("poem", "knife")


def test_different_users_get_different_recommendations() -> None:
    assert len({tuple(recommended("knife", user_id=str(user))) for user in range(20)}) > 10


def test_recommendations_are_the_same_in_every_process() -> None:
    program = (
        "from recommendation_service.domain import *\n"
        "catalog = Catalog(Product(str(number), ('a',)) for number in range(100))\n"
        "print(recommend(catalog, RecommendationRequest('ada', ['7'])))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, capture_output=True, check=True, timeout=60
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


ANY_ID = st.sampled_from([*CATALOG.ids, "submarine", ""])


@given(st.lists(ANY_ID, max_size=20), st.text(max_size=5))
def test_at_most_five_distinct_products_are_recommended_and_none_of_the_given_ones(
    product_ids: list[str], user_id: str
) -> None:
    chosen = recommended(*product_ids, user_id=user_id)
    assert not set(chosen) & set(product_ids)
    assert len(set(chosen)) == len(chosen) <= 5
    assert set(chosen) <= set(CATALOG.ids)


@pytest.mark.parametrize(
    ("user_id", "product_ids", "field"), [("ada", ["pan"] * 1001, "product_ids"), ("x" * 129, [], "user_id")]
)
def test_too_long_input_is_rejected(user_id: str, product_ids: list[str], field: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        RecommendationRequest(user_id, product_ids)
    assert refused.value.violations[0].field == field
