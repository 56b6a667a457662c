import json

import pytest

from chassis.values.money import Money
from product_catalog_service.__main__ import Settings
from product_catalog_service.store import parse_catalog

MUG: dict[str, object] = {
    "id": "mug",
    "name": "Stoneware mug",
    "description": "Holds tea.",
    "picture": "/mug.jpg",
    "price_usd": "16.25",
    "categories": ["kitchen"],
}


def file(*entries: dict[str, object]) -> bytes:
    return json.dumps(entries).encode()


def test_the_packaged_file_has_at_least_forty_products_in_eight_categories() -> None:
    products = parse_catalog(Settings().catalog_file.read_bytes()).products
    assert len(products) >= 40
    assert len({category for product in products for category in product.categories}) >= 8


@pytest.mark.parametrize(
    ("price", "nanos"),
    [("16.25", 16_250_000_000), ("0.000000001", 1), ("7", 7_000_000_000), ("999999999999.999999999", 10**21 - 1)],
)
def test_prices_are_parsed_exactly(price: str, nanos: int) -> None:
    assert parse_catalog(file(MUG | {"price_usd": price})).find("mug").price == Money("USD", nanos)


NO_PRICES = ("0", "-1", "", "free", "NaN", "Infinity", "0.0000000001", "1234567890123.1", None)


@pytest.mark.parametrize(
    ("raw", "named"),
    [
        *(
            (
                file(MUG, MUG | {"id": "kettle", "price_usd": price}),
                r"`price_usd` must .* at `\$\[1\]`|\$\[1\]\.price_usd`",
            )
            for price in NO_PRICES
        ),
        *(
            (file({name: value for name, value in MUG.items() if name != missing}), rf"`{missing}` - at `\$\[0\]`")
            for missing in MUG
        ),
        (file(MUG | {"id": "two words"}), r"\$\[0\]\.id`"),
        (file(MUG | {"id": "x" * 65}), r"\$\[0\]\.id`"),
        (file(MUG | {"name": " "}), r"\$\[0\]\.name`"),
        (file(MUG | {"categories": []}), r"\$\[0\]\.categories`"),
        (file(MUG | {"categories": ["kitchen", ""]}), r"\$\[0\]\.categories\[1\]`"),
        (file(MUG | {"colour": "blue"}), r"`colour` - at `\$\[0\]`"),
        (file(MUG, MUG), "two products have the id mug"),
        *((file(*[MUG | {"id": str(n)} for n in range(count)]), "from 1 to 10,000 products") for count in (0, 10_001)),
        *(
            (raw, r"truncated|malformed|Expected `(array|object)`")
            for raw in (b"", b"[{", b"{}", b"\xff", b"[" * 100_000)
        ),
    ],
)
def test_an_invalid_file_is_rejected_with_what_is_invalid(raw: bytes, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        parse_catalog(raw)
