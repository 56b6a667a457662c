import secrets
import time
from contextlib import suppress
from typing import Annotated, Any

import typer

from chassis.errors import NotFound
from shop.address_pb2 import Address as PostalAddress
from shop.checkout_pb2 import PlaceOrderRequest
from shop_cli import control_room_client
from shop_cli.clients import checkout_client, is_replayed, key_metadata
from shop_cli.commands.options import MAX_INT32, Address, Json, Key, User
from shop_cli.commands.running import print_trace
from shop_cli.output.printing import print_json, print_order
from shop_cli.sample_order import ADDRESS, TEST_CARD, TEST_CVV, card_info

_PLACE_ORDER = "shop.CheckoutService/PlaceOrder"
# Services export spans once a second, so wait this long before looking for the trace.
_EXPORT_SECONDS = 1.5
_TRACE_SECONDS = 10.0
_POLL_SECONDS = 0.2

Card = Annotated[
    str, typer.Option(envvar="SHOP_CARD", show_default=False, help="Card number. Default: the number of a test card.")
]
Cvv = Annotated[
    int,
    typer.Option(
        envvar="SHOP_CVV", min=0, max=9999, show_default=False, help="Security code. Default: that of the test card."
    ),
]
Expires = Annotated[
    str | None, typer.Option(metavar="YYYY-MM", help="Last month of validity. Default: December of next year.")
]

Zip = Annotated[int, typer.Option("--zip", min=0, max=MAX_INT32, help="Postal code, in digits.")]
Trace = Annotated[bool, typer.Option("--trace", help="Show the order's trace afterwards, as the running shop has it.")]


async def order(
    user: User,
    *,
    currency: Annotated[str, typer.Option(help="Currency to pay in.")] = "USD",
    email: Annotated[str, typer.Option(help="Recipient of the confirmation.")] = "demo@example.com",
    street: Annotated[str, typer.Option(help="Street and house number.")] = ADDRESS.street_address,
    city: Annotated[str, typer.Option(help="City.")] = ADDRESS.city,
    state: Annotated[str, typer.Option(help="State or province.")] = "",
    country: Annotated[str, typer.Option(help="Country.")] = ADDRESS.country,
    zip_code: Zip = ADDRESS.zip_code,
    card: Card = TEST_CARD,
    cvv: Cvv = TEST_CVV,
    expires: Expires = None,
    key: Key = None,
    trace: Trace = False,
    as_json: Json = False,
    address: Address = None,
) -> None:
    """Order the contents of a user's cart."""
    trace_id, metadata = secrets.token_hex(16), key_metadata(key)
    if trace:
        control_room_client.require_run()
        metadata += (("traceparent", f"00-{trace_id}-{secrets.token_hex(8)}-01"),)
    request = PlaceOrderRequest(
        user_id=user,
        user_currency=currency.upper(),
        email=email,
        address=PostalAddress(street_address=street, city=city, state=state, country=country, zip_code=zip_code),
        credit_card=card_info(card, cvv, expires),
    )
    async with checkout_client(address) as checkout:
        call = checkout.PlaceOrder(request, metadata=metadata)
        placed = await call
        replayed = await is_replayed(call)
    if as_json:
        print_json(placed)
    else:
        print_order(placed.order)
    if replayed:
        typer.echo("This is a repeat: the order had been placed before, and nothing was ordered again.", err=True)
    if trace:
        spans = _wait_for_trace(trace_id)
        if spans:
            typer.echo(f"\ntrace {trace_id}", err=True)
            print_trace(spans, as_json=as_json)
        else:
            typer.echo(f"No span of trace {trace_id} has arrived: does `shop up` export elsewhere?", err=True)


def _wait_for_trace(trace_id: str) -> list[dict[str, Any]]:
    """Wait for PlaceOrder's server span, then return the trace's spans. On timeout, return the spans found so far."""
    spans: list[dict[str, Any]] = []
    deadline = time.monotonic() + _TRACE_SECONDS
    time.sleep(_EXPORT_SECONDS)
    while not any(span["name"] == _PLACE_ORDER and span["kind"] == "SERVER" for span in spans):
        if time.monotonic() > deadline:
            break
        time.sleep(_POLL_SECONDS)
        with suppress(NotFound):
            spans = control_room_client.call("GET", "api", "traces", trace_id)
    return spans
