"""Writes letters from templates."""

from decimal import Decimal
from pathlib import Path

from babel import Locale
from babel.numbers import format_currency, get_currency_symbol
from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

from chassis.money import Money
from email_service.domain import Letter, Order

_NANO_DIGITS = 9
# Where the currency's name stands for a sign, a space that does not break keeps it off the digits.
_SPELLED = "¤\u00a0#,##0.00"


class Stationery:
    """The templates, compiled once."""

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

    def confirmation(self, recipient: str, order: Order) -> Letter:
        """Tell the recipient about the order that was placed."""
        # A subject is one line, whatever separates lines in Unicode.
        subject = " ".join(f"Your order {order.order_id}".split())
        facts = {
            "subject": subject,
            "order": order,
            "lines": [(line.quantity, line.product_id, self.amount(line.cost)) for line in order.lines],
            "shipping": self.amount(order.shipping_cost),
            "total": self.amount(order.total),
        }
        return Letter(order.order_id, recipient, subject, self._text.render(facts), self._html.render(facts))

    def amount(self, amount: Money) -> str:
        """Write an amount as its currency is, rounded half-even to its decimals: €1,234.50, ¥163, CHF 7.00."""
        code, exact = amount.currency_code, Decimal(amount.total_nanos).scaleb(-_NANO_DIGITS)
        spelled = get_currency_symbol(code, self._locale)[-1].isalpha()
        return format_currency(exact, code, _SPELLED if spelled else None, self._locale)
