"""Parses the products file: a JSON list of objects with the fields of `Product`, the price in quotes: "19.99"."""

from collections.abc import Iterator

from msgspec import Raw, json

from product_catalog_service.domain import Catalog, Product


def parse_catalog(raw: bytes) -> Catalog:
    """Parse the file. Raise a ValueError that names the invalid entry and field."""
    return Catalog(_products(raw))


def _products(raw: bytes) -> Iterator[Product]:
    """Decode one entry at a time: decoding all of them in a single step would block the event loop."""
    try:
        entries = json.decode(raw, type=list[Raw])
    except RecursionError as error:
        raise ValueError("JSON is malformed: too many nested arrays or objects") from error
    for position, entry in enumerate(entries):
        try:
            yield from json.decode(b"[%b]" % entry, type=list[Product])
        except ValueError as error:
            raise ValueError(str(error).replace("$[0]", f"$[{position}]", 1)) from error
