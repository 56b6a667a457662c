"""Renders confirmation e-mails from templates."""

from decimal import Decimal
from pathlib import Path

from babel import Locale
from babel.numbers import format_currency, get_currency_symbol
from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

from chassis.money import Money
from email_service.domain import ConfirmationEmail, Order

_NANO_DIGITS = 9
# For currencies without a symbol: a non-breaking space separates the code from the digits.
_CODE_PATTERN = "¤\u00a0#,##0.00"


class ConfirmationTemplates:
    """The templates of a confirmation, compiled once."""

    def __init__(self) -> None:
        environment = Environment(
            loader=FileSystemLoader(Path(__file__).parent / "templates"),
            autoescape=select_autoescape(["html"]),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._text = environment.get_template("confirmation.txt")
        self._html = environment.get_template("confirmation.html")
        self._locale = Locale("en", "US")

    def render(self, recipient: str, order: Order) -> ConfirmationEmail:
        # `split` removes every Unicode line separator: a subject is one line.
        subject = " ".join(f"Your order {order.order_id}".split())
        values = {
            "subject": subject,
            "order": order,
            "lines": [(line.quantity, line.product_id, self.format_amount(line.cost)) for line in order.lines],
            "shipping": self.format_amount(order.shipping_cost),
            "total": self.format_amount(order.total),
        }
        return ConfirmationEmail(
            order.order_id, recipient, subject, self._text.render(values), self._html.render(values)
        )

    def format_amount(self, amount: Money) -> str:
        """Format an amount by the rules of its currency, rounded half-even: €1,234.50, ¥163, CHF 7.00."""
        code, exact = amount.currency_code, Decimal(amount.total_nanos).scaleb(-_NANO_DIGITS)
        has_symbol = not get_currency_symbol(code, self._locale)[-1].isalpha()
        return format_currency(exact, code, None if has_symbol else _CODE_PATTERN, self._locale)
