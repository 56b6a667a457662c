"""A sample address and a test card, for orders that don't need real ones."""

import re
from datetime import UTC, datetime

from chassis.errors import InvalidArgument
from chassis.rpc.wire import card_to_wire
from chassis.values.orders import Card
from shop.address_pb2 import Address
from shop.checkout_pb2 import PlaceOrderRequest
from shop.payment_pb2 import CreditCardInfo

# Payment providers reserve this card number for tests. No bank issues cards with this number.
TEST_CARD = "4242 4242 4242 4242"
TEST_CVV = 123
ADDRESS = Address(street_address="1 Harbour Street", city="Hamburg", country="Germany", zip_code=20095)


def sample_order(user_id: str, email: str) -> PlaceOrderRequest:
    return PlaceOrderRequest(
        user_id=user_id, user_currency="EUR", email=email, address=ADDRESS, credit_card=card_info()
    )


def card_info(number: str = TEST_CARD, cvv: int = TEST_CVV, expires: str | None = None) -> CreditCardInfo:
    """Return a card, by default valid until December of next year. Raise InvalidArgument if `expires` isn't YYYY-MM."""
    expires = expires or f"{datetime.now(UTC).year + 1}-12"
    if not re.fullmatch("[0-9]{4}-[0-9]{2}", expires):
        raise InvalidArgument.field("expires", "must be a year and a month such as 2031-12")
    return card_to_wire(Card(number, cvv, year=int(expires[:4]), month=int(expires[5:])))
