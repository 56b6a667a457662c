import asyncio
import os
import time
from contextlib import suppress

from chassis.errors import NotFound, Unavailable
from shop.order_pb2 import OrderResult
from shop_cli.clients import checkout_client, fill_cart, mail_client
from shop_cli.commands.mail import message_text
from shop_cli.local.child_process import temporary_folder
from shop_cli.local.otlp_receiver import exporting_to, receiver
from shop_cli.local.ports import reserved
from shop_cli.local.processes import Process, Shop
from shop_cli.local.run_file import locked
from shop_cli.local.telemetry_store import TelemetryStore, TraceQuery
from shop_cli.local.workspace import default_ports, discover_services
from shop_cli.output.next_steps import EXAMPLES
from shop_cli.output.printing import console, print_order
from shop_cli.output.trace_tree import trace_tree
from shop_cli.sample_order import sample_order
from shop_internal.mail_records_pb2 import GetMailRequest

_USER = "demo"
_LINES = 3
_PLACE_ORDER = "shop.CheckoutService/PlaceOrder"
_CONFIRMATION_SECONDS = 60.0


async def demo() -> None:
    """Start all services, place an order in EUR, show its confirmation and trace, and stop everything."""
    started = time.monotonic()
    # Inherit only these variables: a developer's environment may contain settings for another shop.
    environment = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    programs = discover_services()
    names = default_ports(programs)
    telemetry = TelemetryStore()
    temporary = temporary_folder("shop-demo-")
    with temporary as data, locked(data), reserved(len(names) + 1) as (otlp_port, *ports):
        by_name = dict(zip(names, ports, strict=True))
        async with receiver(otlp_port, telemetry.add):
            async with Shop(programs, data, by_name, environment | exporting_to(otlp_port)) as shop:
                console.print("[bold]Starting the services")
                await asyncio.gather(*map(_start, shop))
                await fill_cart(shop, _USER, _LINES)
                await _place_order(shop)
            # Show the trace only after the shop has stopped: services export their last spans when they stop.
            _show_trace(telemetry)
    console.print(f"\nAll services stopped; {time.monotonic() - started:.1f} s in total.")
    console.print("\nTo run the whole shop until Ctrl-C, with a control room to open in a browser, type")
    console.out(f"  make up\nand in another terminal for example\n{EXAMPLES}")


async def _start(process: Process) -> None:
    seconds = await process.wait_until_serving()
    console.out(f"{process.name:<16} serving after {seconds:.1f} s")


async def _place_order(shop: Shop) -> None:
    request = sample_order(_USER, "demo@example.com")
    async with checkout_client(shop["checkout"]) as checkout:
        order = (await checkout.PlaceOrder(request)).order
    console.print("\n[bold]Order in EUR")
    print_order(order)
    console.print("\n[bold]Confirmation")
    console.out(message_text(await _confirmation(shop, order)))


async def _confirmation(shop: Shop, order: OrderResult) -> str:
    """Wait for the order's confirmation email and return it. Raise Unavailable if it takes too long."""
    request = GetMailRequest(order_id=order.order_id)
    deadline = time.monotonic() + _CONFIRMATION_SECONDS
    async with mail_client(shop["email"]) as records:
        while time.monotonic() < deadline:
            with suppress(NotFound):
                return (await records.GetMail(request)).message
            await asyncio.sleep(0.05)
    message = f"no confirmation of order {order.order_id} after {_CONFIRMATION_SECONDS:g} s"
    raise Unavailable(message, reason="CONFIRMATION_MISSING")


def _show_trace(telemetry: TelemetryStore) -> None:
    console.print("\n[bold]Trace")
    for found in telemetry.summaries(TraceQuery(operation=_PLACE_ORDER, limit=1)):
        console.print(trace_tree(telemetry.trace(found.trace_id), console.width))
