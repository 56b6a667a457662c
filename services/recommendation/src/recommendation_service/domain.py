"""Which products go with which."""

import random
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from chassis.errors import Unavailable
from chassis.fields import limit_count, limit_text

MAX_RECOMMENDED = 5
MAX_GIVEN = 1_000

_MAX_USER_ID_LENGTH = 128


class CatalogUnavailable(Unavailable):
    """The product catalog does not answer, and has not since this service started."""

    def __init__(self) -> None:
        super().__init__("the product catalog is unavailable", retry_after_seconds=1)


@dataclass(frozen=True, slots=True)
class Product:
    """As much of a product as recommending takes."""

    id: str
    categories: tuple[str, ...]


class Catalog:
    """The products there are, by category."""

    def __init__(self, products: Iterable[Product]) -> None:
        self._categories = {product.id: product.categories for product in products}
        self._ids_by_category: dict[str, set[str]] = {}
        for product_id, categories in self._categories.items():
            for category in categories:
                self._ids_by_category.setdefault(category, set()).add(product_id)

    @property
    def ids(self) -> Collection[str]:
        """All products."""
        return self._categories.keys()

    def related(self, given: Iterable[str]) -> set[str]:
        """Find the products that share a category with a given one, themselves among them. Unknown ids are ignored."""
        categories = {category for product_id in given for category in self._categories.get(product_id, ())}
        return {product_id for category in categories for product_id in self._ids_by_category[category]}


class CatalogSource(Protocol):
    """Where the catalog comes from."""

    async def current(self) -> Catalog:
        """Tell what is known of the catalog. Raises CatalogUnavailable."""


@dataclass(frozen=True, slots=True)
class Page:
    """Who looks at which products, up to 1,000; nobody in particular when the user's id is empty."""

    user_id: str
    product_ids: Sequence[str]

    def __post_init__(self) -> None:
        limit_text(self.user_id, "user_id", max_length=_MAX_USER_ID_LENGTH)
        limit_count(self.product_ids, "product_ids", max_count=MAX_GIVEN)


def recommend(catalog: Catalog, page: Page) -> list[str]:
    """Choose up to five products that the page does not show: related ones first, then others.

    The choice is at random, but the same for the same user, products (in any order) and catalog, in every process.
    """
    given = sorted(set(page.product_ids))
    choice = random.Random("\0".join([page.user_id, *given]))  # noqa: S311 - no secret depends on it
    related = catalog.related(given).difference(given)
    chosen = _some(related, MAX_RECOMMENDED, choice)
    if len(chosen) < MAX_RECOMMENDED:
        others = set(catalog.ids).difference(related, given)
        chosen += _some(others, MAX_RECOMMENDED - len(chosen), choice)
    return chosen


def _some(ids: set[str], count: int, choice: random.Random) -> list[str]:
    """Sorted first: a set's own order differs between processes."""
    return choice.sample(sorted(ids), min(count, len(ids)))
