"""Selection of the products to recommend."""

import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from chassis.errors import Unavailable
from chassis.values.fields import limit_count, limit_text

MAX_RECOMMENDED = 5
MAX_PRODUCT_IDS = 1_000

_MAX_USER_ID_LENGTH = 128


class CatalogUnavailable(Unavailable):
    """The product catalog has not responded since this service started."""

    def __init__(self) -> None:
        super().__init__("the product catalog is unavailable", retry_after_seconds=1)


@dataclass(frozen=True, slots=True)
class Product:
    """The part of a product that recommendations depend on."""

    id: str
    categories: tuple[str, ...]


class Catalog:
    """All products, by category."""

    def __init__(self, products: Iterable[Product]) -> None:
        self._categories = {product.id: product.categories for product in products}
        self._ids_by_category: dict[str, set[str]] = {}
        for product_id, categories in self._categories.items():
            for category in categories:
                self._ids_by_category.setdefault(category, set()).add(product_id)

    @property
    def ids(self) -> Collection[str]:
        return self._categories.keys()

    def related(self, given: Iterable[str]) -> set[str]:
        """Return the products that share a category with a given one, including those. Ignore unknown ids."""
        categories = {category for product_id in given for category in self._categories.get(product_id, ())}
        return {product_id for category in categories for product_id in self._ids_by_category[category]}


class CatalogSource(Protocol):
    """Provides the catalog."""

    async def current(self) -> Catalog:
        """Return the latest catalog. Raise CatalogUnavailable when there is none yet."""


@dataclass(frozen=True, slots=True)
class RecommendationRequest:
    """A user and the products on the current page.

    Attributes:
        user_id: empty for an anonymous user.
        product_ids: at most MAX_PRODUCT_IDS.
    """

    user_id: str
    product_ids: Sequence[str]

    def __post_init__(self) -> None:
        limit_text(self.user_id, "user_id", max_length=_MAX_USER_ID_LENGTH)
        limit_count(self.product_ids, "product_ids", max_count=MAX_PRODUCT_IDS)


def recommend(catalog: Catalog, request: RecommendationRequest) -> list[str]:
    """Choose up to MAX_RECOMMENDED products that are not in the request: related ones first, then others.

    The choice is pseudorandom: every process chooses the same for the same user, products (in any order) and catalog.
    """
    given = sorted(set(request.product_ids))
    choice = _Choice("\0".join([request.user_id, *given]))
    related = catalog.related(given).difference(given)
    chosen = choice.sample(related, MAX_RECOMMENDED)
    if len(chosen) < MAX_RECOMMENDED:
        others = set(catalog.ids).difference(related, given)
        chosen += choice.sample(others, MAX_RECOMMENDED - len(chosen))
    return chosen


class _Choice:
    """Pseudorandom choices that depend on a text only. Its digest has more than enough bits for a few of them.

    A seeded random.Random would take more than twice as long.
    """

    def __init__(self, text: str) -> None:
        self._number = int.from_bytes(hashlib.blake2b(text.encode()).digest())

    def sample(self, ids: set[str], count: int) -> list[str]:
        """Choose so many ids, or all if there are fewer."""
        left = sorted(ids)  # the order of a set differs between processes
        chosen: list[str] = []
        while left and len(chosen) < count:
            self._number, index = divmod(self._number, len(left))
            chosen.append(left.pop(index))
        return chosen
