"""Parses the purchases file: a JSON list of purchases, each a list of product ids."""

from typing import Annotated

from msgspec import Meta, json

from recommendation_service.domain import Purchases

Id = Annotated[str, Meta(min_length=1, max_length=64)]
Purchase = Annotated[set[Id], Meta(min_length=2, max_length=100)]


def parse_purchases(raw: bytes) -> Purchases:
    """Parse the file. Raise a ValueError that names the invalid entry."""
    return Purchases(json.decode(raw, type=list[Purchase]))
