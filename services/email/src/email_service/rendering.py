"""Renders confirmation e-mails from templates."""

from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from urllib.parse import quote

from babel import Locale
from babel.numbers import get_currency_precision, get_currency_symbol
from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

from chassis.money import Money
from email_service.domain import ConfirmationEmail, Order

_NANO_DIGITS = 9
_LOCALE = Locale("en", "US")


class ConfirmationTemplates:
    """The templates of a confirmation, compiled once.

    Args:
        storefront_url: the base URL of the pages of orders; without one, no e-mail has a link.
    """

    def __init__(self, storefront_url: str | None = None) -> None:
        self._storefront_url = storefront_url
        environment = Environment(
            loader=FileSystemLoader(Path(__file__).parent / "templates"),
            autoescape=select_autoescape(["html"]),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._text = environment.get_template("confirmation.txt")
        self._html = environment.get_template("confirmation.html")

    def render(self, recipient: str, order: Order, names: Mapping[str, str]) -> ConfirmationEmail:
        """Render an order's confirmation; a product whose name is missing is shown by its id."""
        # `split` removes every Unicode line separator: a subject is one line.
        subject = " ".join(f"Your order {order.order_id}".split())
        values = {
            "subject": subject,
            "order": order,
            "order_url": self._url_of(order.order_id),
            "lines": [
                (line.quantity, names.get(line.product_id) or line.product_id, format_amount(line.cost))
                for line in order.lines
            ],
            "shipping": format_amount(order.shipping_cost),
            "total": format_amount(order.total),
        }
        return ConfirmationEmail(
            order.order_id, recipient, subject, self._text.render(values), self._html.render(values)
        )

    def _url_of(self, order_id: str) -> str | None:
        return None if self._storefront_url is None else f"{self._storefront_url}/orders/{quote(order_id, safe='')}"


def format_amount(amount: Money) -> str:
    """Format an amount by the rules of its currency, rounded half-even: €1,234.50, ¥163, CHF 7.00."""
    # babel's format_currency takes five times as long, and an e-mail has many amounts.
    prefix, digits = _currency_format(amount.currency_code)
    sign = "-" if amount.total_nanos < 0 else ""
    return f"{sign}{prefix}{Decimal(abs(amount.total_nanos)).scaleb(-_NANO_DIGITS):,.{digits}f}"


@lru_cache(maxsize=256)
def _currency_format(code: str) -> tuple[str, int]:
    """Return what precedes the digits of an amount, and the number of decimal places."""
    symbol = get_currency_symbol(code, _LOCALE)
    # A non-breaking space separates the code of a currency without a symbol from the digits.
    return symbol if not symbol[-1].isalpha() else f"{code}\u00a0", get_currency_precision(code)
