"""`shop products`: look at the catalog."""

from collections.abc import Iterable

import typer

from shop import empty_pb2, product_catalog_pb2
from shop_cli.clients import Address, catalog_at, synchronous
from shop_cli.output import Json, amount, console, print_json, print_table

products = typer.Typer(no_args_is_help=True, help="Look at the catalog.")


@products.command("list")
@synchronous
async def list_products(*, as_json: Json = False, address: Address = None) -> None:
    """List all products."""
    async with catalog_at(address) as catalog:
        answer = await catalog.ListProducts(empty_pb2.Empty())
    _print_products(answer.products, as_json=as_json)


@products.command("search")
@synchronous
async def search_products(query: str, *, as_json: Json = False, address: Address = None) -> None:
    """Search names, descriptions and categories, best match first."""
    async with catalog_at(address) as catalog:
        answer = await catalog.SearchProducts(product_catalog_pb2.SearchProductsRequest(query=query))
    _print_products(answer.results, as_json=as_json)


@products.command("show")
@synchronous
async def show_product(product_id: str, *, as_json: Json = False, address: Address = None) -> None:
    """Show one product."""
    async with catalog_at(address) as catalog:
        product = await catalog.GetProduct(product_catalog_pb2.GetProductRequest(id=product_id))
    _print_products([product], as_json=as_json)
    if not as_json:
        console.print(f"\n{product.description}\n{product.picture}", markup=False)


def _print_products(found: Iterable[product_catalog_pb2.Product], *, as_json: bool) -> None:
    if as_json:
        print_json(*found)
        return
    rows = ((each.id, each.name, amount(each.price_usd), ", ".join(each.categories)) for each in found)
    print_table(["Id", "Name", "Price ", "Categories"], rows)
