"""Products, carts, orders and traces, as the pages show them."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from chassis.values.money import Money

BASE_CURRENCY = "USD"
"""The currency of the catalog, and of a visitor who has chosen no other."""


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
        self._by_category: dict[str, list[Product]] = {}
        for product in products:
            for category in product.categories:
                self._by_category.setdefault(category, []).append(product)
        self.categories = tuple(self._by_category)

    def get(self, product_id: str) -> Product | None:
        return self._by_id.get(product_id)

    def known(self, product_ids: Iterable[str]) -> list[Product]:
        """Return the products with these ids that are still sold."""
        return [product for product_id in product_ids if (product := self.get(product_id))]

    def in_category(self, category: str) -> list[Product]:
        """Return the products of a category; none if it does not exist."""
        return self._by_category.get(category, [])

    def emblems(self) -> dict[str, Product]:
        """Return a product to show for each category, preferably one whose first category it is."""
        found = {product.categories[0]: product for product in reversed(self.products) if product.categories}
        taken = set(found.values())
        return {
            name: found.get(name) or next((product for product in products if product not in taken), products[0])
            for name, products in self._by_category.items()
        }

    def selection(self, count: int) -> list[Product]:
        """Return at most `count` products, one from each category."""
        chosen: dict[str, Product] = {}
        for products in self._by_category.values():
            fresh = next((product for product in products if product.id not in chosen), None)
            if fresh is not None:
                chosen[fresh.id] = fresh
        return list(chosen.values())[:count]


@dataclass(frozen=True, slots=True)
class CartLine:
    product_id: str
    quantity: int


@dataclass(frozen=True, slots=True)
class Recommended:
    """Products that go with others, and the version of the service that chose them, if known."""

    product_ids: tuple[str, ...] = ()
    version: str = ""


@dataclass(frozen=True, slots=True)
class Ad:
    """A short text that links to a page of this shop."""

    url: str
    text: str


@dataclass(frozen=True, slots=True)
class Step:
    at: datetime
    name: str
    state: str
    attempt: int
    worker_number: int
    detail: str


@dataclass(frozen=True, slots=True)
class OrderLine:
    """A product in an order; `cost` covers the whole quantity."""

    product_id: str
    quantity: int
    cost: Money


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
        state: as in `shop.internal.OrderState`, without its prefix.
        lines: only in lists of orders, where there is no receipt.
        receipt: None once its details are deleted because of their age.
        workers: how many workers have owned the order: more than one after a takeover.
    """

    order_id: str
    user_id: str
    state: str
    total: Money
    workers: int
    created_at: datetime
    tracking_id: str
    reason: str
    lines: tuple[CartLine, ...] = ()
    history: tuple[Step, ...] = ()
    receipt: Receipt | None = None

    @property
    def is_final(self) -> bool:
        """Whether the order no longer changes, unless its customer orders the cart again."""
        return self.state not in {"CHARGING", "SHIPPED", "VOIDING"}


@dataclass(frozen=True, slots=True)
class Span:
    """A span of a trace. Times are in milliseconds; `start` counts from the start of the trace."""

    name: str
    service: str
    start: float
    duration: float
    depth: int
    failed: bool


@dataclass(frozen=True, slots=True)
class Trace:
    """The spans of a trace in the order of a waterfall."""

    trace_id: str
    spans: tuple[Span, ...] = ()

    @property
    def duration(self) -> float:
        return max((span.start + span.duration for span in self.spans), default=0.0)


def is_local_path(text: str) -> bool:
    """Return whether a link leads to a path of this shop: two slashes would name another host."""
    return text.startswith("/") and text[1:2] not in {"/", "\\"} and text.isprintable()


def session_label(user_id: str) -> str:
    """Return a session id for telemetry, from which the user id cannot be derived."""
    return hashlib.sha256(f"session {user_id}".encode()).hexdigest()[:16]
