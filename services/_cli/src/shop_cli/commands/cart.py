"""`shop cart`: fill, show and empty a cart."""

from typing import Annotated

import typer

from shop import cart_pb2
from shop_cli.clients import cart_client, key_metadata
from shop_cli.commands.options import Address, Json, Key, User, async_command
from shop_cli.output.printing import print_json, print_table

cart = typer.Typer(no_args_is_help=True, help="Fill, show and empty a cart.")


@cart.command("add")
@async_command
async def add_to_cart(
    user: User,
    product_id: Annotated[str, typer.Argument(metavar="PRODUCT", help="Id of the product.")],
    *,
    quantity: Annotated[int, typer.Option(help="How many to add.")] = 1,
    key: Key = None,
    address: Address = None,
) -> None:
    """Add a product to a cart."""
    item = cart_pb2.CartItem(product_id=product_id, quantity=quantity)
    async with cart_client(address) as client:
        await client.AddItem(cart_pb2.AddItemRequest(user_id=user, item=item), metadata=key_metadata(key))


@cart.command("show")
@async_command
async def show_cart(user: User, *, as_json: Json = False, address: Address = None) -> None:
    """Show a cart."""
    async with cart_client(address) as client:
        found = await client.GetCart(cart_pb2.GetCartRequest(user_id=user))
    if as_json:
        print_json(found)
    else:
        print_table(["Product", "Quantity "], ((item.product_id, str(item.quantity)) for item in found.items))


@cart.command("empty")
@async_command
async def empty_cart(user: User, *, address: Address = None) -> None:
    """Remove everything from a cart."""
    async with cart_client(address) as client:
        await client.EmptyCart(cart_pb2.EmptyCartRequest(user_id=user))
