"""The parts of carts and orders that services exchange."""

from dataclasses import dataclass

from chassis.values.fields import limit_text, require_between, require_words
from chassis.values.money import Money

MAX_TEXT_LENGTH = 256


@dataclass(frozen=True, slots=True)
class Item:
    product_id: str
    quantity: int


@dataclass(frozen=True, slots=True)
class OrderLine:
    """An ordered product. `cost` covers the whole quantity."""

    product_id: str
    quantity: int
    cost: Money


@dataclass(frozen=True, slots=True)
class Address:
    """A delivery address. Unknown parts are empty or zero; `country` is a name or an ISO 3166 code."""

    street_address: str
    city: str
    state: str
    country: str
    zip_code: int


def check_address(address: Address, field: str, *, is_complete: bool = True) -> None:
    """Raise InvalidArgument for the first part of the address that is missing or too long."""
    for name in ("street_address", "city", "state", "country"):
        check = require_words if is_complete and name != "state" else limit_text
        check(getattr(address, name), f"{field}.{name}", max_length=MAX_TEXT_LENGTH)
    if is_complete:
        require_between(address.zip_code, f"{field}.zip_code", 0, 2**31 - 1)
