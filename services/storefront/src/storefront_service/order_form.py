"""The checkout form: its fields, their validation rules and their error messages."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from stdnum import luhn

from chassis.errors import InvalidArgument
from chassis.values.cards import SEPARATORS, has_card_number
from chassis.values.countries import postal_formats
from chassis.values.email_addresses import require_email_address
from chassis.values.fields import has_control, parse_idempotency_key
from chassis.values.orders import Address, Card

_MAX_TEXT = 256
_NUMBERS = ("zip_code", "credit_card_number")


@dataclass(frozen=True, slots=True)
class OrderForm:
    """A valid checkout form. Card data is empty until the visitor has seen the total. `repr` never shows card data."""

    key: str  # generated with the page, so submitting a page twice places only one order
    email: str
    address: Address
    card: Card


class InvalidForm(Exception):
    """Form fields are missing or invalid. `problems` maps the name of each such field to a message for the customer."""

    def __init__(self, problems: Mapping[str, str]) -> None:
        super().__init__("the form has invalid fields")
        self.problems = dict(problems)


@dataclass(frozen=True, slots=True)
class _Field:
    """A field's validation rule and error messages. `missing` is None if the field is optional."""

    missing: str | None
    invalid: str = ""
    is_valid: Callable[[str], object] = bool


def parse(fields: Mapping[str, str], *, with_card: bool = True) -> OrderForm:
    """Parse the fields into a form. Raise InvalidForm if any field is missing or invalid."""
    texts = {name: fields.get(name, "").strip() for name in _FIELDS if with_card or name not in CARD_FIELDS}
    problems = {name: problem for name, value in texts.items() if (problem := _problem(name, value))}
    if postal_formats(texts["country"]) and not _is_postal_code(texts["zip_code"]):
        problems["zip_code"] = "Enter your postal code, which has digits only."
    if problems:
        raise InvalidForm(problems)
    zip_code = int(_digits(texts["zip_code"]) or 0)
    return OrderForm(
        key=parse_idempotency_key(fields["key"]) if with_card else "",
        email=require_email_address(texts["email"], "email"),
        address=Address(texts["street_address"], texts["city"], texts["state"], texts["country"], zip_code),
        card=Card(
            _digits(texts.get("credit_card_number", "")),
            cvv=int(texts.get("credit_card_cvv", 0)),
            year=int(texts.get("credit_card_expiration_year", 0)),
            month=int(texts.get("credit_card_expiration_month", 0)),
        ),
    )


def _problem(name: str, value: str) -> str | None:
    """Return the error message for a field's value, or None if the value is valid."""
    if not value:
        return _FIELDS[name].missing
    if len(value) > _MAX_TEXT:
        return f"Use at most {_MAX_TEXT} characters."
    if has_control(_digits(value) if name in _NUMBERS else value):
        return "Remove line breaks and other control characters."
    if name not in CARD_FIELDS and has_card_number(value):
        return "Remove the card number: the form asks for it later."
    return None if _FIELDS[name].is_valid(value) else _FIELDS[name].invalid


def _is_year(value: str) -> bool:
    return bool(re.fullmatch("[0-9]{4}", value)) and int(value) >= datetime.now(UTC).year


def _is_email(value: str) -> bool:
    try:
        require_email_address(value, "email")
    except InvalidArgument:
        return False
    return True


def _is_postal_code(value: str) -> bool:
    return bool(re.fullmatch("[0-9]{1,9}", _digits(value)))


def _is_card_number(value: str) -> bool:
    return bool(re.fullmatch("[0-9]{12,19}", _digits(value))) and luhn.is_valid(_digits(value))


def _digits(number: str) -> str:
    return SEPARATORS.sub("", number)


_MONTH, _CVV = (re.compile(pattern).fullmatch for pattern in ("0?[1-9]|1[0-2]", "[0-9]{3,4}"))
_FIELDS = {
    "email": _Field("Enter your e-mail address.", "Enter one e-mail address, such as ada@example.com.", _is_email),
    "street_address": _Field("Enter your street and house number."),
    # Postal codes are required only in countries where they consist of digits.
    "zip_code": _Field(
        None, "Only digits fit here. Leave it empty, and add your code to the city: London SW1A 1AA.", _is_postal_code
    ),
    "city": _Field("Enter your city."),
    "state": _Field(None),
    "country": _Field(
        "Choose your country.", "Choose a country from the list.", lambda value: postal_formats(value) is not None
    ),
    "credit_card_number": _Field(
        "Enter your card number.", "This is not a card number: compare its digits with the card.", _is_card_number
    ),
    "credit_card_expiration_month": _Field("Enter the month.", "Enter a month from 1 to 12.", _MONTH),
    "credit_card_expiration_year": _Field(
        "Enter the year.", "Enter a year that has not passed, in four digits.", _is_year
    ),
    "credit_card_cvv": _Field("Enter the security code.", "Enter the three or four digits of the security code.", _CVV),
}
"""All fields, in the order in which the page shows them."""

CARD_FIELDS = frozenset(name for name in _FIELDS if name.startswith("credit_card_"))
"""Fields with card data, which must never appear in a page, log, cookie or error."""
DELIVERY_FIELDS = _FIELDS.keys() - CARD_FIELDS
