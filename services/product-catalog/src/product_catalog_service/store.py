"""Parses the file of products: a JSON list of objects with the fields of `_Entry`."""

from decimal import Decimal
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter

from chassis.money import NANOS_PER_UNIT, Money
from product_catalog_service.domain import MAX_ID_LENGTH, Catalog, Product

# Requests cannot contain control characters, so a product whose id has one could not be found.
Id = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x20\x7f]+$", max_length=MAX_ID_LENGTH)]
Category = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=64)]
Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=120)]
Description = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=2000)]
Picture = Annotated[str, StringConstraints(pattern=r"^[!-~]+$", max_length=256)]
Price = Annotated[Decimal, Field(gt=0, max_digits=21, decimal_places=9)]


class _Entry(BaseModel):
    """A product in the file. Its price is a decimal number of dollars, in quotes: "19.99"."""

    model_config = ConfigDict(extra="forbid")

    id: Id
    name: Name
    description: Description
    picture: Picture
    price_usd: Price
    categories: Annotated[tuple[Category, ...], Field(min_length=1)]


_ENTRIES = TypeAdapter(list[_Entry])


def parse_catalog(raw: bytes) -> Catalog:
    """Parse the content of the file. Raise ValueError that names the invalid entry and field."""
    return Catalog(_to_product(entry) for entry in _ENTRIES.validate_json(raw))


def _to_product(entry: _Entry) -> Product:
    return Product(
        id=entry.id,
        name=entry.name,
        description=entry.description,
        picture=entry.picture,
        price=Money("USD", int(entry.price_usd * NANOS_PER_UNIT)),
        categories=entry.categories,
    )
