"""The checkout form: its fields, their rules, and the messages beside them."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from chassis.errors import InvalidArgument
from chassis.values.fields import parse_idempotency_key, require_email_address

_MAX_TEXT = 256
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class OrderForm:
    """A valid checkout form. Its representation has no digit of the card."""

    key: str  # made with the page, so that sending the same page again is the same order
    email: str
    street_address: str
    city: str
    state: str
    country: str
    zip_code: int
    card_number: str = field(repr=False)
    cvv: int = field(repr=False)
    year: int = field(repr=False)
    month: int = field(repr=False)


class InvalidForm(Exception):
    """Fields of the form are missing or invalid. The messages, by field, are for people."""

    def __init__(self, messages: Mapping[str, str]) -> None:
        super().__init__("the form has invalid fields")
        self.messages = dict(messages)


@dataclass(frozen=True, slots=True)
class _Field:
    """The rule of a field, and the messages for a missing value, which may be fine, and for an invalid one."""

    missing: str | None
    invalid: str = ""
    is_valid: Callable[[str], object] = bool


def parse(fields: Mapping[str, str]) -> OrderForm:
    """Return the form with these fields. Raise InvalidForm with a message for each invalid one."""
    texts = {name: fields.get(name, "").strip() for name in _FIELDS}
    messages = {name: message for name, value in texts.items() if (message := _problem(name, value))}
    if messages:
        raise InvalidForm(messages)
    return OrderForm(
        key=parse_idempotency_key(fields.get("key", "")),
        email=texts["email"],
        street_address=texts["street_address"],
        city=texts["city"],
        state=texts["state"],
        country=texts["country"],
        zip_code=int(texts["zip_code"]),
        card_number=_digits(texts["credit_card_number"]),
        cvv=int(texts["credit_card_cvv"]),
        year=int(texts["credit_card_expiration_year"]),
        month=int(texts["credit_card_expiration_month"]),
    )


def _problem(name: str, value: str) -> str | None:
    """Return the message for an invalid value, None for a valid one."""
    if not value:
        return _FIELDS[name].missing
    if len(value) > _MAX_TEXT:
        return f"Use at most {_MAX_TEXT} characters."
    if _CONTROL.search(value):
        return "Remove line breaks and other control characters."
    return None if _FIELDS[name].is_valid(value) else _FIELDS[name].invalid


def _is_year(value: str) -> bool:
    return bool(re.fullmatch("[0-9]{4}", value)) and int(value) >= datetime.now(UTC).year


def _is_email(value: str) -> bool:
    try:
        require_email_address(value, "email")
    except InvalidArgument:
        return False
    return True


def _is_card_number(value: str) -> bool:
    return bool(re.fullmatch("[0-9]{12,19}", _digits(value)))


def _digits(number: str) -> str:
    return number.replace(" ", "").replace("-", "")


_ZIP_CODE, _MONTH, _CVV = (re.compile(pattern).fullmatch for pattern in ("[0-9]{1,9}", "0?[1-9]|1[0-2]", "[0-9]{3,4}"))
_FIELDS = {
    "email": _Field("Enter your e-mail address.", "Enter one e-mail address, such as ada@example.com.", _is_email),
    "street_address": _Field("Enter your street and house number."),
    "zip_code": _Field("Enter your postal code.", "Enter the postal code in digits.", _ZIP_CODE),
    "city": _Field("Enter your city."),
    "state": _Field(None),
    "country": _Field("Enter your country."),
    "credit_card_number": _Field("Enter your card number.", "Enter the 12 to 19 digits on the card.", _is_card_number),
    "credit_card_expiration_month": _Field("Enter the month.", "Enter a month from 1 to 12.", _MONTH),
    "credit_card_expiration_year": _Field(
        "Enter the year.", "Enter a year that has not passed, with four digits.", _is_year
    ),
    "credit_card_cvv": _Field("Enter the security code.", "Enter the three or four digits of the security code.", _CVV),
}
"""In the order of the page."""

CARD_FIELDS = frozenset(name for name in _FIELDS if name.startswith("credit_card_"))
"""Fields that no page, log or error repeats."""
