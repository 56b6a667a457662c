"""`shop demo`: all services, one order in EUR, its e-mail and its trace; then everything is stopped."""

import asyncio
import os
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from chassis.errors import Unavailable
from shop.address_pb2 import Address
from shop.cart_pb2 import AddItemRequest, CartItem
from shop.checkout_pb2 import PlaceOrderRequest
from shop.empty_pb2 import Empty
from shop.order_pb2 import OrderResult
from shop.product_catalog_pb2 import Product
from shop_cli.clients import cart_at, catalog_at, checkout_at, synchronous
from shop_cli.commands.order import card_info
from shop_cli.local.otlp_receiver import Received, exporting_to, receiving
from shop_cli.local.ports import reserved
from shop_cli.local.processes import Shop
from shop_cli.local.states import StatesDisplay, states_of
from shop_cli.local.trace_tree import trace_of, trace_tree
from shop_cli.local.workspace import discover_services
from shop_cli.output import amount, console, print_order, table

_USER = "demo"
_LINES = 3
_PLACE_ORDER = "shop.CheckoutService/PlaceOrder"
_START_SECONDS = 60.0
_REFRESH_SECONDS = 0.1
_MAIL_SECONDS = 10.0

Folder = Annotated[Path | None, typer.Option(help="Where the services keep their data; a new temporary folder else.")]


class MailMissing(Unavailable):
    """The order's confirmation did not appear."""


@synchronous
async def demo(*, folder: Folder = None) -> None:
    """Start all services, place an order in EUR, show it, its e-mail and its trace, stop everything."""
    started = time.monotonic()
    programs = discover_services()
    data = folder or Path(tempfile.mkdtemp(prefix="shop-demo-"))
    with reserved(len(programs) + 1) as (otlp_port, *ports):
        by_name = dict(zip((program.name for program in programs), ports, strict=True))
        async with receiving(otlp_port) as received:
            async with Shop(programs, data, by_name, _environment(otlp_port)) as shop:
                await _start(shop)
                await _fill_cart(shop)
                await _order(shop, data)
            # Stopping made the services send the last of their spans.
            _show_trace(received)
    console.print(f"\nEverything is stopped again; {time.monotonic() - started:.1f} s in all.")


def _environment(otlp_port: int) -> dict[str, str]:
    """Nothing that a developer has set for other shops takes part."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    return {**kept, **exporting_to(otlp_port)}


async def _start(shop: Shop) -> None:
    console.print("[bold]Starting the services")
    waiting = asyncio.create_task(shop.wait_until_serving(_START_SECONDS))
    try:
        with StatesDisplay(shop) as display:
            while not waiting.done():
                await asyncio.wait([waiting], timeout=_REFRESH_SECONDS)
                display.show(await states_of(shop))
        await waiting
    finally:
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


async def _fill_cart(shop: Shop) -> None:
    async with catalog_at(shop["product-catalog"].address) as catalog:
        products = _of_different_categories((await catalog.ListProducts(Empty())).products)
    async with cart_at(shop["cart"].address) as cart:
        for quantity, product in enumerate(products, start=1):
            item = CartItem(product_id=product.id, quantity=quantity)
            await cart.AddItem(AddItemRequest(user_id=_USER, item=item))
    console.print("\n[bold]A cart")
    rows = [
        (product.id, product.name, str(quantity), amount(product.price_usd))
        for quantity, product in enumerate(products, start=1)
    ]
    console.print(table(["Id", "Name", "Quantity ", "Price "], rows))


def _of_different_categories(products: Iterable[Product]) -> list[Product]:
    return list({product.categories[0]: product for product in products}.values())[:_LINES]


async def _order(shop: Shop, data: Path) -> None:
    request = PlaceOrderRequest(
        user_id=_USER,
        user_currency="EUR",
        email="demo@example.com",
        address=Address(street_address="1 Harbour Street", city="Hamburg", country="Germany", zip_code=20095),
        credit_card=card_info(),
    )
    async with checkout_at(shop["checkout"].address) as checkout:
        order = (await checkout.PlaceOrder(request)).order
    console.print("\n[bold]An order in EUR")
    print_order(order)
    console.print(f"\n[bold]Its e-mail[/bold] {await _mail(order, data)}", soft_wrap=True)


async def _mail(order: OrderResult, data: Path) -> Path:
    """The file of the confirmation; it is written before the answer, or soon after it."""
    give_up_at = time.monotonic() + _MAIL_SECONDS
    while time.monotonic() < give_up_at:
        for path in (data / ".shop" / "outbox").glob("*.eml"):
            if order.order_id in path.name:
                return path
        await asyncio.sleep(0.05)
    raise MailMissing(f"no e-mail of order {order.order_id} after {_MAIL_SECONDS:g} s")


def _show_trace(received: Received) -> None:
    console.print("\n[bold]Its trace")
    console.print(trace_tree(trace_of(received.spans, _PLACE_ORDER)))
