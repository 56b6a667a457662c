"""`shop products`, `shop cart` and `shop convert`: what customers do before they order."""

import re
from collections.abc import Iterable
from decimal import Decimal, InvalidOperation
from typing import Annotated

import typer

from chassis.errors import InvalidArgument
from chassis.money import NANOS_PER_UNIT, Money
from chassis.wire import money_to_wire
from shop import cart_pb2, currency_pb2, empty_pb2, money_pb2, product_catalog_pb2
from shop_cli.output import Json, amount, console, print_json, print_table
from shop_cli.peers import Address, cart_at, catalog_at, currency_at, synchronous

products = typer.Typer(no_args_is_help=True, help="Look at the catalog.")
cart = typer.Typer(no_args_is_help=True, help="Fill, show and empty a cart.")

User = Annotated[str, typer.Argument(help="Whose cart it is.")]
Key = Annotated[str | None, typer.Option(help="Idempotency key: the same key again has no further effect.")]


def key_metadata(key: str | None) -> tuple[tuple[str, str], ...]:
    """The metadata that carries an idempotency key."""
    return (("idempotency-key", key),) if key else ()


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


@synchronous
async def convert(
    value: Annotated[str, typer.Argument(metavar="AMOUNT")],
    from_code: Annotated[str, typer.Argument(metavar="FROM")],
    to_code: Annotated[str, typer.Argument(metavar="TO")],
    *,
    as_json: Json = False,
    address: Address = None,
) -> None:
    """Convert an amount between currencies, such as `shop convert 12.50 USD EUR`."""
    request = currency_pb2.CurrencyConversionRequest(to_code=to_code.upper())
    getattr(request, "from").CopyFrom(_money(value, from_code.upper()))
    async with currency_at(address) as currency:
        converted = await currency.Convert(request)
    if as_json:
        print_json(converted)
    else:
        console.print(amount(converted))


def _money(value: str, currency_code: str) -> money_pb2.Money:
    try:
        nanos = Decimal(value) * NANOS_PER_UNIT
    except InvalidOperation as error:
        raise InvalidArgument.field("amount", "must be a number such as 12.50") from error
    if not nanos.is_finite() or nanos != nanos.to_integral_value() or not re.fullmatch("[A-Z]{3}", currency_code):
        raise InvalidArgument.field("amount", "must have at most nine decimals and a currency of three letters")
    return money_to_wire(Money(currency_code, int(nanos)).in_range())
