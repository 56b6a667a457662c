"""`shop cart`: fill, show and empty a cart."""

import typer

from shop import cart_pb2
from shop_cli.clients import Address, Key, User, cart_at, key_metadata, synchronous
from shop_cli.output import Json, print_json, print_table

cart = typer.Typer(no_args_is_help=True, help="Fill, show and empty a cart.")


@cart.command("add")
@synchronous
async def add_to_cart(
    user: User,
    product_id: str,
    *,
    quantity: int = 1,
    key: Key = None,
    address: Address = None,
) -> None:
    """Put a quantity of a product into a cart."""
    item = cart_pb2.CartItem(product_id=product_id, quantity=quantity)
    async with cart_at(address) as stub:
        await stub.AddItem(cart_pb2.AddItemRequest(user_id=user, item=item), metadata=key_metadata(key))


@cart.command("show")
@synchronous
async def show_cart(user: User, *, as_json: Json = False, address: Address = None) -> None:
    """Show a cart."""
    async with cart_at(address) as stub:
        found = await stub.GetCart(cart_pb2.GetCartRequest(user_id=user))
    if as_json:
        print_json(found)
    else:
        print_table(["Product", "Quantity "], ((item.product_id, str(item.quantity)) for item in found.items))


@cart.command("empty")
@synchronous
async def empty_cart(user: User, *, address: Address = None) -> None:
    """Take everything out of a cart."""
    async with cart_at(address) as stub:
        await stub.EmptyCart(cart_pb2.EmptyCartRequest(user_id=user))
