"""Finds products for commands that have only their ids."""

from collections.abc import Mapping
from difflib import get_close_matches

import typer

from chassis.errors import DeadlineExceeded, NotFound, Unavailable
from shop.empty_pb2 import Empty
from shop.product_catalog_pb2 import Product
from shop_cli.clients import catalog_client

_CATALOG_SECONDS = 2.0
_MAX_PROPOSED = 3


class ProductNotFound(NotFound):
    """The catalog has no product with this id."""


async def read_products() -> dict[str, Product]:
    """Return the products on sale by id. If the catalog does not answer, print why and return none."""
    try:
        async with catalog_client(None) as catalog:
            response = await catalog.ListProducts(Empty(), timeout=_CATALOG_SECONDS)
    except (Unavailable, DeadlineExceeded) as error:
        typer.echo(f"names and prices are unknown: {error.message}", err=True)
        return {}
    return {product.id: product for product in response.products}


def require_product(product_id: str, products: Mapping[str, Product]) -> None:
    """Raise ProductNotFound, which proposes similar ids, if the product is not on sale."""
    if product_id in products:
        return
    wanted, ids = product_id.lower(), {each.lower(): each for each in products}
    similar = [each.id for each in products.values() if wanted in f"{each.id} {each.name}".lower()]
    similar += [ids[each] for each in get_close_matches(wanted, ids)]
    proposed = list(dict.fromkeys(similar))[:_MAX_PROPOSED]
    question = f"did you mean {' or '.join(proposed)}? " if proposed else ""
    raise ProductNotFound(f"no product has the id {product_id}: {question}`shop products list` shows all")
