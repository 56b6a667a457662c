"""`shop order`: orders what is in a cart."""

import re
from datetime import UTC, datetime
from typing import Annotated

import typer

from chassis.errors import InvalidArgument
from shop.address_pb2 import Address as PostalAddress
from shop.checkout_pb2 import PlaceOrderRequest
from shop.payment_pb2 import CreditCardInfo
from shop_cli.clients import Address, Key, User, checkout_at, key_metadata, synchronous
from shop_cli.output import Json, print_json, print_order

# Every payment provider documents this number as a test card; no bank ever issued it.
TEST_CARD = "4242 4242 4242 4242"
TEST_CVV = 123

Card = Annotated[str, typer.Option(envvar="SHOP_CARD", show_default=False, help="Card number, else a test card's.")]
Cvv = Annotated[int, typer.Option(envvar="SHOP_CVV", show_default=False, help="Its security code.")]
Expires = Annotated[str | None, typer.Option(metavar="YYYY-MM", help="Its last month, else the end of next year.")]


@synchronous
async def order(
    user: User,
    *,
    currency: Annotated[str, typer.Option(help="What to pay in.")] = "EUR",
    email: Annotated[str, typer.Option(help="Where the confirmation goes.")] = "demo@example.com",
    street: str = "1 Harbour Street",
    city: str = "Hamburg",
    state: str = "",
    country: str = "Germany",
    zip_code: Annotated[int, typer.Option("--zip")] = 20095,
    card: Card = TEST_CARD,
    cvv: Cvv = TEST_CVV,
    expires: Expires = None,
    key: Key = None,
    as_json: Json = False,
    address: Address = None,
) -> None:
    """Order what is in a user's cart."""
    request = PlaceOrderRequest(
        user_id=user,
        user_currency=currency.upper(),
        email=email,
        address=PostalAddress(street_address=street, city=city, state=state, country=country, zip_code=zip_code),
        credit_card=card_info(card, cvv, expires),
    )
    async with checkout_at(address) as checkout:
        placed = await checkout.PlaceOrder(request, metadata=key_metadata(key))
    if as_json:
        print_json(placed)
    else:
        print_order(placed.order)


def card_info(number: str = TEST_CARD, cvv: int = TEST_CVV, expires: str | None = None) -> CreditCardInfo:
    """A card that expires in a month written as YYYY-MM, at the end of next year unless given."""
    expires = expires or f"{datetime.now(UTC).year + 1}-12"
    if not re.fullmatch("[0-9]{4}-[0-9]{2}", expires):
        raise InvalidArgument.field("expires", "must be a year and a month such as 2031-12")
    return CreditCardInfo(
        credit_card_number=number,
        credit_card_cvv=cvv,
        credit_card_expiration_year=int(expires[:4]),
        credit_card_expiration_month=int(expires[5:]),
    )
