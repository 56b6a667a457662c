"""Products, carts, orders and traces as the pages show them."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from chassis.values.money import Money
from chassis.values.orders import Item, OrderLine

BASE_CURRENCY = "USD"
"""The currency of catalog prices. Visitors see prices in this currency unless they choose another."""


@dataclass(frozen=True, slots=True)
class Product:
    id: str
    name: str
    description: str
    picture: str
    price: Money
    categories: tuple[str, ...]


class Catalog:
    """All products on sale, in catalog order."""

    def __init__(self, products: Sequence[Product]) -> None:
        self.products = tuple(products)
        self._by_id = {product.id: product for product in products}
        self.by_category: dict[str, list[Product]] = {}
        for product in products:
            for category in product.categories:
                self.by_category.setdefault(category, []).append(product)

    def get(self, product_id: str) -> Product | None:
        return self._by_id.get(product_id)

    def known(self, product_ids: Iterable[str]) -> list[Product]:
        """Return the products with these ids, leaving out any that are no longer sold."""
        return [product for product_id in product_ids if (product := self.get(product_id))]

    def emblems(self) -> dict[str, Product]:
        """Choose a product to illustrate each category, preferably one that lists that category first."""
        found = {product.categories[0]: product for product in reversed(self.products) if product.categories}
        taken = set(found.values())
        return {
            name: found.get(name) or next((product for product in products if product not in taken), products[0])
            for name, products in self.by_category.items()
        }


@dataclass(frozen=True, slots=True)
class Step:
    at: datetime
    name: str
    state: str
    attempt: int
    epoch: int
    detail: str


@dataclass(frozen=True, slots=True)
class Receipt:
    lines: tuple[OrderLine, ...]
    shipping_cost: Money
    address: tuple[str, ...]

    @property
    def total(self) -> Money:
        return sum((line.cost for line in self.lines), self.shipping_cost)


@dataclass(frozen=True, slots=True)
class Order:
    """An order and its history.

    Attributes:
        state: a name from `shop.internal.OrderState`, without the prefix `ORDER_STATE_`.
        holds_cart: whether checkout refuses to sell the same cart again because of this order.
        lines: the ordered items; set only in lists of orders, which have no receipts.
        receipt: None in lists of orders, and for old orders whose details have been deleted.
    """

    order_id: str
    user_id: str
    state: str
    total: Money
    created_at: datetime
    tracking_id: str
    reason: str
    holds_cart: bool
    lines: tuple[Item, ...] = ()
    history: tuple[Step, ...] = ()
    receipt: Receipt | None = None

    @property
    def takeovers(self) -> int:
        """The number of times a worker has taken over the order from another worker."""
        return sum(step.name == "taken_over" for step in self.history)

    @property
    def is_final(self) -> bool:
        """Whether the order's state is final. A final state changes only if the customer orders the same cart again."""
        return self.state not in {"CHARGING", "SHIPPED", "VOIDING"}


@dataclass(frozen=True, slots=True)
class Span:
    """A span in a trace. Times are in milliseconds, and `start` is relative to the start of the trace."""

    name: str
    service: str
    start: float
    duration: float
    depth: int
    failed: bool


@dataclass(frozen=True, slots=True)
class Trace:
    """A trace. Its spans are sorted depth first, as a waterfall diagram shows them."""

    trace_id: str
    spans: tuple[Span, ...] = ()

    @property
    def duration(self) -> float:
        return max((span.start + span.duration for span in self.spans), default=0.0)


def is_local_path(text: str) -> bool:
    """Return whether a link stays within this shop. A path that starts with two slashes would point to another host."""
    return text.startswith("/") and text[1:2] not in {"/", "\\"} and text.isprintable()


def session_label(user_id: str) -> str:
    """Return a session id that telemetry can use without revealing the user id."""
    # With 32 digits, it looks like a trace id. Shorter ones may look like a card number, and be masked.
    return hashlib.sha256(f"session {user_id}".encode()).hexdigest()[:32]
