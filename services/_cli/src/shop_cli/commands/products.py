from typing import Annotated

import typer

from shop import empty_pb2, product_catalog_pb2
from shop_cli.clients import catalog_client
from shop_cli.commands.options import Address, Json, ProductId
from shop_cli.output.printing import Columns, amount, console, print_list

products = typer.Typer(no_args_is_help=True, help="Browse the catalog.")

_COLUMNS: Columns[product_catalog_pb2.Product] = {
    "Id": lambda product: product.id,
    "Name": lambda product: product.name,
    "Price ": lambda product: amount(product.price_usd),
    "Categories": lambda product: ", ".join(product.categories),
}


@products.command("list")
async def list_products(*, as_json: Json = False, address: Address = None) -> None:
    """List all products."""
    async with catalog_client(address) as catalog:
        response = await catalog.ListProducts(empty_pb2.Empty())
    print_list(response.products, _COLUMNS, as_json=as_json)


@products.command("search")
async def search_products(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="Words to search for.")],
    *,
    as_json: Json = False,
    address: Address = None,
) -> None:
    """Search names, descriptions and categories. The best match comes first."""
    async with catalog_client(address) as catalog:
        response = await catalog.SearchProducts(product_catalog_pb2.SearchProductsRequest(query=query))
    print_list(response.results, _COLUMNS, as_json=as_json)


@products.command("show")
async def show_product(product_id: ProductId, *, as_json: Json = False, address: Address = None) -> None:
    """Show one product."""
    async with catalog_client(address) as catalog:
        product = await catalog.GetProduct(product_catalog_pb2.GetProductRequest(id=product_id))
    print_list([product], _COLUMNS, as_json=as_json)
    if not as_json:
        console.print(f"\n{product.description}\n{product.picture}", markup=False)
