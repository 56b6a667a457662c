import json

import pytest

from chassis.values.money import Money
from product_catalog_service.__main__ import Settings
from product_catalog_service.domain import Catalog
from product_catalog_service.store import parse_catalog

MUG: dict[str, object] = {
    "id": "mug",
    "name": "Stoneware mug",
    "description": "Holds tea.",
    "picture": "/mug.jpg",
    "price_usd": "16.25",
    "categories": ["kitchen"],
}


def parse(*entries: dict[str, object]) -> Catalog:
    return parse_catalog(json.dumps(entries).encode())


def without(field: str) -> dict[str, object]:
    return {name: value for name, value in MUG.items() if name != field}


def test_the_packaged_file_has_at_least_forty_products_in_eight_categories() -> None:
    products = parse_catalog(Settings().catalog_file.read_bytes()).products
    assert len(products) >= 40
    assert len({category for product in products for category in product.categories}) >= 8


@pytest.mark.parametrize(
    ("price", "nanos"),
    [("16.25", 16_250_000_000), ("0.000000001", 1), ("7", 7_000_000_000), ("999999999999.999999999", 10**21 - 1)],
)
def test_prices_are_parsed_exactly(price: str, nanos: int) -> None:
    assert parse(MUG | {"price_usd": price}).find("mug").price == Money("USD", nanos)


@pytest.mark.parametrize("price", ["0", "-1", "", "free", "NaN", "Infinity", "0.0000000001", "1234567890123.1", None])
def test_an_invalid_price_is_rejected_with_its_entry_and_field(price: object) -> None:
    with pytest.raises(ValueError, match=r"`price_usd` must .* at `\$\[1\]`|at `\$\[1\]\.price_usd`"):
        parse(MUG, MUG | {"id": "kettle", "price_usd": price})


@pytest.mark.parametrize("field", list(MUG))
def test_a_missing_field_is_rejected_with_its_entry_and_name(field: str) -> None:
    with pytest.raises(ValueError, match=rf"`{field}` - at `\$\[0\]`"):
        parse(without(field))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"id": "two words"}, r"\$\[0\]\.id`"),
        ({"id": "x" * 65}, r"\$\[0\]\.id`"),
        ({"name": " "}, r"\$\[0\]\.name`"),
        ({"categories": []}, r"\$\[0\]\.categories`"),
        ({"categories": ["kitchen", ""]}, r"\$\[0\]\.categories\[1\]`"),
        ({"colour": "blue"}, r"`colour` - at `\$\[0\]`"),
    ],
)
def test_an_invalid_field_is_rejected_with_its_entry_and_name(change: dict[str, object], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        parse(MUG | change)


def test_a_duplicate_id_is_rejected_with_the_id() -> None:
    with pytest.raises(ValueError, match="two products have the id mug"):
        parse(MUG, MUG)


@pytest.mark.parametrize("raw", [b"", b"[{", b"{}", b"\xff", b"[" * 100_000])
def test_anything_but_a_list_of_products_is_rejected(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"truncated|malformed|Expected `(array|object)`"):
        parse_catalog(raw)
