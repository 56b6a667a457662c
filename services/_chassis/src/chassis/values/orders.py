"""The parts of carts and orders that services exchange."""

from dataclasses import dataclass, field
from functools import cached_property

from chassis.values.fields import limit_text, require_between, require_words
from chassis.values.money import Money

MAX_TEXT_LENGTH = 256
_SEPARATORS = str.maketrans("", "", " -")


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


@dataclass(frozen=True)
class Card:
    """A card as sent by the caller, not yet validated. Its repr hides everything, and it must never be stored.

    Attributes:
        number: the card number, whose digits may be separated by spaces or hyphens.
        cvv: the security code as an integer, so 012 becomes 12.
        year, month: when the card expires (four-digit year). The card is valid until the end of that month.
    """

    number: str = field(repr=False)
    cvv: int = field(repr=False)
    year: int = field(repr=False)
    month: int = field(repr=False)

    @cached_property
    def digits(self) -> str:
        return self.number.translate(_SEPARATORS)


@dataclass(frozen=True, slots=True)
class Address:
    """A delivery address. Unknown parts are empty or zero; `country` is a name or an ISO 3166 code.

    Stored orders and digests contain exactly these fields. Add others beside the address, because the previous release
    can't read an address with more.
    """

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
