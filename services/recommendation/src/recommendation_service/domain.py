"""Selection of the products to recommend."""

import random
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
    choice = random.Random("\0".join([request.user_id, *given]))  # noqa: S311 - a choice, not a secret
    related = catalog.related(given).difference(given)
    others = set(catalog.ids).difference(related, given)
    chosen: list[str] = []
    for candidates in (related, others):
        # Sorted, because the order of a set differs between processes.
        chosen += choice.sample(sorted(candidates), min(len(candidates), MAX_RECOMMENDED - len(chosen)))
    return chosen
