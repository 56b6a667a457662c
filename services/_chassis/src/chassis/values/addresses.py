"""The text of delivery addresses. All services apply these rules."""

from chassis.values.cards import refuse_card_number
from chassis.values.fields import limit_text, require_words

MAX_TEXT_LENGTH = 256


def check_address_text(address: object, field: str, *, is_complete: bool = True) -> None:
    """Raise InvalidArgument for the first text of an address that is too long, has a card number, or is missing.

    Only a complete address must have street, city and country.
    """
    for name in ("street_address", "city", "state", "country"):
        path = f"{field}.{name}"
        check = require_words if is_complete and name != "state" else limit_text
        refuse_card_number(check(getattr(address, name), path, max_length=MAX_TEXT_LENGTH), path)
