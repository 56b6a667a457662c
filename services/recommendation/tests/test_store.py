import json
from pathlib import Path
from typing import Any

import pytest

from recommendation_service.__main__ import Settings
from recommendation_service.domain import Catalog, Product, recommend
from recommendation_service.store import parse_purchases
from shop_kit.settings import load_settings

CATALOG = Path(__file__).parents[2] / "product-catalog/src/product_catalog_service/data/products.json"


def test_the_packaged_file_has_five_other_products_of_the_catalog_for_each() -> None:
    purchases = parse_purchases(load_settings(Settings, {"product_catalog_addr": "x:1"}).purchases_file.read_bytes())
    ids = [product["id"] for product in json.loads(CATALOG.read_text())]
    empty = Catalog([])
    for product_id in ids:
        together = {found for equals in purchases.rank(empty, [product_id]) for found in equals}
        assert together <= {*ids}
        assert len(together - {product_id}) >= 5, product_id


def test_products_that_are_not_sold_any_more_are_not_recommended() -> None:
    purchases = parse_purchases(b'[["pan", "knife"], ["pan", "withdrawn"]]')
    catalog = Catalog([Product("pan", ()), Product("knife", ())])
    assert recommend(catalog, "ada", ["pan"], purchases.rank) == ["knife"]


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("no JSON", "malformed"),
        ({"pan": ["knife"]}, "Expected `array`"),
        ([["pan", "knife"], ["pan"]], r"length >= 2 - at `\$\[1\]`"),
        ([["pan", "pan"]], r"length >= 2 - at `\$\[0\]`"),
        ([["pan", ""]], r"length >= 1 - at `\$\[0\]"),
        ([["pan", "x" * 65]], r"length <= 64 - at `\$\[0\]"),
        ([[str(number) for number in range(101)]], r"length <= 100 - at `\$\[0\]`"),
        ([["pan", 7]], r"Expected `str`, got `int` - at `\$\[0\]"),
    ],
)
def test_an_invalid_file_is_rejected_with_its_entry(content: Any, named: str) -> None:
    raw = content if isinstance(content, str) else json.dumps(content)
    with pytest.raises(ValueError, match=named):
        parse_purchases(raw.encode())


def test_an_unknown_version_ends_the_start(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        load_settings(Settings, {"product_catalog_addr": "x:1", "recommendation_version": "v4"})
    assert capsys.readouterr().err == "RECOMMENDATION_VERSION: must be one of v1, v2, v3\n"
