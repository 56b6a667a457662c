"""`shop order`: order the contents of a cart."""

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from chassis.errors import InvalidArgument
from shop.address_pb2 import Address as PostalAddress
from shop.checkout_pb2 import PlaceOrderRequest
from shop.payment_pb2 import CreditCardInfo
from shop_cli.clients import checkout_client, key_metadata
from shop_cli.commands.options import Address, Json, Key, User, async_command
from shop_cli.output.printing import print_json, print_order

if TYPE_CHECKING:
    from shop_cli.commands.order_trace import OrderTrace

# Payment providers document this number as a test card; it is never issued.
TEST_CARD = "4242 4242 4242 4242"
TEST_CVV = 123

_REPLAYED = ("order-replayed", "true")

Card = Annotated[
    str, typer.Option(envvar="SHOP_CARD", show_default=False, help="Card number. Default: the number of a test card.")
]
Cvv = Annotated[
    int, typer.Option(envvar="SHOP_CVV", show_default=False, help="Security code. Default: that of the test card.")
]
Expires = Annotated[
    str | None, typer.Option(metavar="YYYY-MM", help="Last month of validity. Default: December of next year.")
]

Trace = Annotated[bool, typer.Option("--trace", help="Show the order's trace afterwards, as the running shop has it.")]


@async_command
async def order(
    user: User,
    *,
    currency: Annotated[str, typer.Option(help="Currency to pay in.")] = "EUR",
    email: Annotated[str, typer.Option(help="Recipient of the confirmation.")] = "demo@example.com",
    street: Annotated[str, typer.Option(help="Street and house number.")] = "1 Harbour Street",
    city: Annotated[str, typer.Option(help="City.")] = "Hamburg",
    state: Annotated[str, typer.Option(help="State or province.")] = "",
    country: Annotated[str, typer.Option(help="Country.")] = "Germany",
    zip_code: Annotated[int, typer.Option("--zip", help="Postal code.")] = 20095,
    card: Card = TEST_CARD,
    cvv: Cvv = TEST_CVV,
    expires: Expires = None,
    key: Key = None,
    trace: Trace = False,
    as_json: Json = False,
    address: Address = None,
) -> None:
    """Order the contents of a user's cart."""
    order_trace = _new_trace() if trace else None
    request = PlaceOrderRequest(
        user_id=user,
        user_currency=currency.upper(),
        email=email,
        address=PostalAddress(street_address=street, city=city, state=state, country=country, zip_code=zip_code),
        credit_card=card_info(card, cvv, expires),
    )
    traceparent = order_trace.metadata if order_trace else ()
    async with checkout_client(address) as checkout:
        call = checkout.PlaceOrder(request, metadata=(*key_metadata(key), *traceparent))
        placed = await call
        replayed = _REPLAYED in tuple(await call.trailing_metadata() or ())
    if as_json:
        print_json(placed)
    else:
        print_order(placed.order)
    if replayed:
        typer.echo("This is a repeat: the order had been placed before, and nothing was ordered again.", err=True)
    if order_trace:
        await order_trace.show(as_json=as_json)


def _new_trace() -> "OrderTrace":
    from shop_cli.commands.order_trace import OrderTrace  # noqa: PLC0415 - parses what OTLP exports

    return OrderTrace()


def card_info(number: str = TEST_CARD, cvv: int = TEST_CVV, expires: str | None = None) -> CreditCardInfo:
    """Return a card that expires in a month (YYYY-MM), by default December of next year. Raise InvalidArgument."""
    expires = expires or f"{datetime.now(UTC).year + 1}-12"
    if not re.fullmatch("[0-9]{4}-[0-9]{2}", expires):
        raise InvalidArgument.field("expires", "must be a year and a month such as 2031-12")
    return CreditCardInfo(
        credit_card_number=number,
        credit_card_cvv=cvv,
        credit_card_expiration_year=int(expires[:4]),
        credit_card_expiration_month=int(expires[5:]),
    )
