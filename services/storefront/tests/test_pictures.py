import json
import re
import xml.etree.ElementTree as ET  # only parses our own files
from pathlib import Path

import pytest

from storefront_service.web.static import FOLDER, StaticFiles

CATALOG = Path(__file__).parents[2] / "product-catalog/src/product_catalog_service/data/products.json"
PICTURES = sorted((FOLDER / "products").glob("*.svg"))
MAX_BYTES = 3000


def test_every_product_has_a_picture_and_every_picture_is_of_a_product() -> None:
    static, products = StaticFiles(), json.loads(CATALOG.read_text())
    assert [product["id"] for product in products if "placeholder" in static.picture(product["picture"])] == []
    assert {path.stem for path in PICTURES} == {product["id"] for product in products}
    assert "placeholder.svg" in static.picture("https://evil.example/x.svg")


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.stem)
def test_a_picture_is_small_and_consists_of_shapes_in_the_palette_of_the_others(path: Path) -> None:
    text = path.read_text()
    tags = {element.tag.rpartition("}")[2] for element in ET.fromstring(text).iter()}  # noqa: S314 - our own file
    assert len(text) <= MAX_BYTES
    assert tags <= {"svg", "g", "path", "rect", "circle", "ellipse"}
    palette = {colour for other in PICTURES if other != path for colour in colours(other)}
    assert len(colours(path) - palette) <= 3


def colours(path: Path) -> set[str]:
    return set(re.findall(r'"(#[0-9a-f]{3,6})"', path.read_text()))
