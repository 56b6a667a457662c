import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

from chassis.values.money import format_amount
from email_service.domain import Confirmation, Order, label, message_id_of

# Mail clients turn text like `a.b` or `a@b` into links. To prevent this, postal addresses get a space after each match.
_LINK = re.compile(r"(?<=\w)[.:@\u3002\uff0e\uff61](?=[^\W\d_]|/)")


class ConfirmationTemplates:
    """Renders confirmations, which link to the order only if `storefront_url` is set."""

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

    def render(self, recipient: str, order: Order, names: Mapping[str, str]) -> Confirmation:
        """Render an order's confirmation. A product that is missing from `names` is shown by its id."""
        # `split` removes every Unicode line separator, so an order id cannot inject a header.
        subject = " ".join(f"Your order {order.order_id}".split())
        values = {
            "subject": subject,
            "order": order,
            "order_url": self._storefront_url and f"{self._storefront_url}/orders/{quote(order.order_id, safe='')}",
            "lines": [
                (line.quantity, names.get(line.product_id) or line.product_id, format_amount(line.cost))
                for line in order.lines
            ],
            "shipping": format_amount(order.shipping_cost),
            "total": format_amount(order.total),
            "address": [_LINK.sub(r"\g<0> ", line) for line in label(order.address)],
        }
        text, html = self._text.render(values), self._html.render(values)
        return Confirmation(message_id_of(order.order_id), recipient, subject, text, html)
