"""Parses the products file: a JSON list of objects with the fields of `_Entry`."""

from collections.abc import Iterator
from decimal import Decimal
from typing import Annotated

from msgspec import Meta, Raw, Struct, json

from chassis.values.fields import CONTROL
from chassis.values.money import NANOS_PER_UNIT, Money, require_decimal
from product_catalog_service.domain import MAX_ID_LENGTH, Catalog, Product

# Forbid control characters: requests that contain them are refused, so such a product could never be requested.
Id = Annotated[str, Meta(pattern=rf"^[^ \t\n\r{CONTROL}]+\Z", max_length=MAX_ID_LENGTH)]
Category = Annotated[str, Meta(pattern=r"\S", max_length=64)]
Name = Annotated[str, Meta(pattern=r"\S", max_length=120)]
Description = Annotated[str, Meta(pattern=r"\S", max_length=2000)]
Picture = Annotated[str, Meta(pattern=r"^[!-~]+\Z", max_length=256)]

_PRICE_PLACES = 9
_SMALLEST_PRICE = Decimal(1).scaleb(-_PRICE_PLACES)


class _Entry(Struct, frozen=True, forbid_unknown_fields=True):
    """A product in the file. Its price is a decimal number of dollars in quotes, such as "19.99"."""

    id: Id
    name: Name
    description: Description
    picture: Picture
    price_usd: Decimal
    categories: Annotated[tuple[Category, ...], Meta(min_length=1)]

    def __post_init__(self) -> None:
        highest = 10**12 - _SMALLEST_PRICE
        require_decimal("price_usd", self.price_usd, lowest=_SMALLEST_PRICE, highest=highest, places=_PRICE_PLACES)


def parse_catalog(raw: bytes) -> Catalog:
    """Parse the file. Raise a ValueError that names the invalid entry and field."""
    return Catalog(
        Product(
            id=entry.id,
            name=entry.name.strip(),
            description=entry.description.strip(),
            picture=entry.picture,
            price=Money("USD", int(entry.price_usd * NANOS_PER_UNIT)),
            categories=tuple(category.strip() for category in entry.categories),
        )
        for entry in _entries(raw)
    )


def _entries(raw: bytes) -> Iterator[_Entry]:
    """Decode one entry at a time: decoding all of them in a single step would block the event loop."""
    try:
        entries = json.decode(raw, type=list[Raw])
    except RecursionError as error:
        raise ValueError("JSON is malformed: too many nested arrays or objects") from error
    for position, entry in enumerate(entries):
        try:
            yield from json.decode(b"[%b]" % entry, type=list[_Entry])
        except ValueError as error:
            raise ValueError(str(error).replace("$[0]", f"$[{position}]", 1)) from error
