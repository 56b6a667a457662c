"""Reads products from a JSON file: a list of objects with the fields of `_Entry`."""

from decimal import Decimal
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter

from chassis.money import NANOS_PER_UNIT, Money
from product_catalog_service.domain import MAX_ID_LENGTH, Catalog, Product

# Requests may hold no control characters, so an id with one could never be asked for.
Id = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x20\x7f]+$", max_length=MAX_ID_LENGTH)]
Category = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=64)]
Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=120)]
Description = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=2000)]
Picture = Annotated[str, StringConstraints(pattern=r"^[!-~]+$", max_length=256)]
Price = Annotated[Decimal, Field(gt=0, max_digits=21, decimal_places=9)]


class _Entry(BaseModel):
    """A product as the file writes it; its price is a decimal number of dollars, in quotes: "19.99"."""

    model_config = ConfigDict(extra="forbid")

    id: Id
    name: Name
    description: Description
    picture: Picture
    price_usd: Price
    categories: Annotated[tuple[Category, ...], Field(min_length=1)]


_ENTRIES = TypeAdapter(list[_Entry])


def parse_catalog(raw: bytes) -> Catalog:
    """Turn the file's bytes into products. Raises ValueError that names the entry and the field."""
    return Catalog(_product(entry) for entry in _ENTRIES.validate_json(raw))


def _product(entry: _Entry) -> Product:
    return Product(
        id=entry.id,
        name=entry.name,
        description=entry.description,
        picture=entry.picture,
        price=Money("USD", int(entry.price_usd * NANOS_PER_UNIT)),
        categories=entry.categories,
    )
