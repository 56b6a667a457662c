"""The checkout form: its fields, their rules, and the messages beside them."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from chassis.errors import InvalidArgument
from chassis.values.fields import parse_idempotency_key, require_email_address

CARD_FIELDS = (
    "credit_card_number",
    "credit_card_expiration_month",
    "credit_card_expiration_year",
    "credit_card_cvv",
)
"""Fields that no page, log or error repeats."""

_MAX_TEXT = 256
_REQUIRED = {
    "email": "Enter your e-mail address.",
    "street_address": "Enter your street and house number.",
    "city": "Enter your city.",
    "country": "Enter your country.",
    "zip_code": "Enter your postal code.",
    "credit_card_number": "Enter your card number.",
    "credit_card_cvv": "Enter the security code.",
    "credit_card_expiration_month": "Enter the month.",
    "credit_card_expiration_year": "Enter the year.",
}
# In the order of the page.
_FIELDS = ("email", "street_address", "zip_code", "city", "state", "country", *CARD_FIELDS)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_ZIP_CODE = re.compile("[0-9]{1,9}")
_CARD_NUMBER = re.compile("[0-9]{12,19}")
_CVV = re.compile("[0-9]{3,4}")
_MONTH = re.compile("0?[1-9]|1[0-2]")
_YEAR = re.compile("[0-9]{4}")


@dataclass(frozen=True, slots=True)
class CardData:
    """A card. Its representation has no digit of it."""

    number: str = field(repr=False)
    cvv: int = field(repr=False)
    year: int = field(repr=False)
    month: int = field(repr=False)


@dataclass(frozen=True, slots=True)
class OrderForm:
    """A valid checkout form.

    Attributes:
        key: made with the page, so that sending the same page again is the same order.
    """

    key: str
    email: str
    street_address: str
    city: str
    state: str
    country: str
    zip_code: int
    card: CardData


class InvalidForm(Exception):
    """Fields of the form are missing or invalid.

    Attributes:
        messages: for people, by field.
    """

    def __init__(self, messages: Mapping[str, str]) -> None:
        super().__init__("the form has invalid fields")
        self.messages = dict(messages)


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
        card=CardData(
            number=_digits(texts["credit_card_number"]),
            cvv=int(texts["credit_card_cvv"]),
            year=int(texts["credit_card_expiration_year"]),
            month=int(texts["credit_card_expiration_month"]),
        ),
    )


def _problem(name: str, value: str) -> str | None:
    """Return the message for an invalid value, None for a valid one."""
    if not value:
        return _REQUIRED.get(name)
    if len(value) > _MAX_TEXT:
        return f"Use at most {_MAX_TEXT} characters."
    if _CONTROL.search(value):
        return "Remove line breaks and other control characters."
    valid, message = _FORMATS.get(name, (bool, ""))
    return None if valid(value) else message


def _is_year(value: str) -> bool:
    return bool(_YEAR.fullmatch(value)) and int(value) >= datetime.now(UTC).year


def _is_email(value: str) -> bool:
    try:
        require_email_address(value, "email")
    except InvalidArgument:
        return False
    return True


def _digits(number: str) -> str:
    return number.replace(" ", "").replace("-", "")


_FORMATS: dict[str, tuple[Callable[[str], object], str]] = {
    "email": (_is_email, "Enter one e-mail address, such as ada@example.com."),
    "zip_code": (_ZIP_CODE.fullmatch, "Enter the postal code in digits."),
    "credit_card_number": (
        lambda value: _CARD_NUMBER.fullmatch(_digits(value)),
        "Enter the 12 to 19 digits on the card.",
    ),
    "credit_card_cvv": (_CVV.fullmatch, "Enter the three or four digits of the security code."),
    "credit_card_expiration_month": (_MONTH.fullmatch, "Enter a month from 1 to 12."),
    "credit_card_expiration_year": (_is_year, "Enter a year that has not passed, with four digits."),
}
