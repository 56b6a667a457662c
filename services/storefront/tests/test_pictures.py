import json
import re
import xml.etree.ElementTree as ET  # our own files
from pathlib import Path

import pytest

from storefront_service.web.static import FOLDER, StaticFiles

CATALOG = Path(__file__).parents[2] / "product-catalog/src/product_catalog_service/data/products.json"
PICTURES = sorted((FOLDER / "products").glob("*.svg"))
MAX_BYTES = 3000


def test_every_product_has_a_picture() -> None:
    static = StaticFiles()
    pictures = [product["picture"] for product in json.loads(CATALOG.read_text())]
    assert [path for path in pictures if "placeholder" in static.picture(path)] == []


def test_every_picture_is_of_a_product() -> None:
    ids = {product["id"] for product in json.loads(CATALOG.read_text())}
    assert {path.stem for path in PICTURES} == ids


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.stem)
def test_a_picture_is_small_and_consists_of_shapes_only(path: Path) -> None:
    text = path.read_text()
    tags = {element.tag.rpartition("}")[2] for element in ET.fromstring(text).iter()}  # noqa: S314 - our own file
    assert len(text) <= MAX_BYTES
    assert tags <= {"svg", "g", "path", "rect", "circle", "ellipse"}


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.stem)
def test_the_drawings_share_one_palette(path: Path) -> None:
    palette = {colour for other in PICTURES if other != path for colour in colours(other)}
    assert len(colours(path) - palette) <= 3


def colours(path: Path) -> set[str]:
    return set(re.findall(r'"(#[0-9a-f]{3,6})"', path.read_text()))


def test_a_product_with_a_foreign_picture_gets_a_placeholder() -> None:
    assert "placeholder.svg" in StaticFiles().picture("https://evil.example/x.svg")
