from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from chassis.errors import DeadlineExceeded, NotFound, Unavailable
from chassis.rpc.wire import money_from_wire, money_to_wire
from chassis.values.money import Money, format_plainly, round_to_minor_unit, total
from shop import cart_pb2
from shop.currency_pb2_grpc import CurrencyServiceStub
from shop.empty_pb2 import Empty
from shop.product_catalog_pb2 import Product
from shop_cli.clients import cart_client, catalog_client, currency_client, key_metadata
from shop_cli.commands.convert import convert_amount
from shop_cli.commands.options import MAX_INT32, Address, Json, Key, ProductId, User
from shop_cli.output.printing import console, print_json, print_table
from shop_cli.output.visible import visible

cart = typer.Typer(no_args_is_help=True, help="Fill, show and empty a cart.")

_CATALOG_SECONDS = 2.0

Currency = Annotated[str | None, typer.Option(help="Currency of the prices. Default: the catalog's.")]


@cart.command("add")
async def add_to_cart(
    user: User,
    product_id: ProductId,
    *,
    quantity: Annotated[int, typer.Option(min=1, max=MAX_INT32, help="How many to add.")] = 1,
    key: Key = None,
    address: Address = None,
) -> None:
    """Add a product to a cart."""
    products = await _read_products()
    if products and product_id not in products:
        message = f"no product has the id {product_id}: `shop products search {product_id}` may find it"
        raise NotFound(message, reason="PRODUCT_NOT_FOUND")
    item = cart_pb2.CartItem(product_id=product_id, quantity=quantity)
    async with cart_client(address) as client:
        await client.AddItem(cart_pb2.AddItemRequest(user_id=user, item=item), metadata=key_metadata(key))
    console.out(f"{quantity} x {products[product_id].name if products else product_id} added.")


@cart.command("show")
async def show_cart(user: User, *, currency: Currency = None, as_json: Json = False, address: Address = None) -> None:
    """Show a cart with names, prices and the total without shipping."""
    async with cart_client(address) as client:
        found = await client.GetCart(cart_pb2.GetCartRequest(user_id=user))
    if as_json:
        print_json(found)
    elif not found.items:
        console.out(f"The cart of {user} is empty.")
    else:
        await _show_cart(found.items, await _read_products(), currency)


@cart.command("empty")
async def empty_cart(user: User, *, address: Address = None) -> None:
    """Remove everything from a cart."""
    async with cart_client(address) as client:
        await client.EmptyCart(cart_pb2.EmptyCartRequest(user_id=user))


async def _show_cart(items: Sequence[cart_pb2.CartItem], products: Mapping[str, Product], currency: str | None) -> None:
    """Print a cart's lines. Print the total as well, unless a product's price is unknown."""
    rows, costs = [], []
    async with currency_client(None) as client:
        for item in items:
            line = [item.product_id, "not on sale" if products else "", str(item.quantity), "", ""]
            if product := products.get(item.product_id):
                # Like checkout, convert and round line costs, not unit prices, so that the lines add up to the total.
                price = money_from_wire(product.price_usd)
                costs.append(await _convert(client, price * item.quantity, currency))
                line = [product.id, product.name, str(item.quantity), format_plainly(price), format_plainly(costs[-1])]
            rows.append(line)
    print_table(["Product", "Name", "Quantity ", "Price ", "Cost "], rows)
    if len(costs) == len(rows):
        console.out(f"\ntotal {format_plainly(total(costs[0].currency_code, costs))}, without shipping")


async def _convert(client: CurrencyServiceStub, amount: Money, currency: str | None) -> Money:
    """Convert an amount and round it as checkout does. Without a currency, return the amount unchanged."""
    if currency is None or currency.upper() == amount.currency_code:
        return amount
    return round_to_minor_unit(money_from_wire(await convert_amount(client, money_to_wire(amount), currency)))


async def _read_products() -> dict[str, Product]:
    """Return the catalog's products by id. If the catalog does not respond, print the error and return no products."""
    try:
        async with catalog_client(None) as catalog:
            response = await catalog.ListProducts(Empty(), timeout=_CATALOG_SECONDS)
    except (Unavailable, DeadlineExceeded) as error:
        typer.echo(visible(f"names and prices are unknown: {error.message}"), err=True)
        return {}
    return {product.id: product for product in response.products}
