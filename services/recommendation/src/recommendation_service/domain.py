"""Chooses the products to recommend."""

import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass

from chassis.errors import Unavailable
from chassis.values.fields import limit_count, limit_text

MAX_RECOMMENDED = 5
MAX_PRODUCT_IDS = 1_000

_MAX_USER_ID_LENGTH = 128
# The lowest price, in dollars, of each price band after the first.
_PRICE_BANDS = (25, 50, 100)


class CatalogUnavailable(Unavailable):
    """The product catalog has not responded since this service started."""


@dataclass(frozen=True, slots=True)
class Product:
    """The product data that recommendations need. The price is in whole dollars."""

    id: str
    categories: tuple[str, ...]
    price: int = 0


class Catalog:
    """The products on sale, which may be recommended."""

    def __init__(self, products: Iterable[Product]) -> None:
        self._products = {product.id: product for product in products}
        self.ids = self._products.keys()

    def related(self, given: Iterable[str], groups_of: Callable[[Product], Iterable[Hashable]]) -> set[str]:
        """Return the ids of the given products and of all products in their groups. Ignore unknown ids."""
        groups = {group for id_ in self.ids & given for group in groups_of(self._products[id_])}
        return {id_ for id_, product in self._products.items() if not groups.isdisjoint(groups_of(product))}


def check_request(user_id: str, product_ids: Sequence[str]) -> None:
    """Raise InvalidArgument if the user id is too long or there are too many product ids."""
    limit_text(user_id, "user_id", max_length=_MAX_USER_ID_LENGTH)
    limit_count(product_ids, "product_ids", max_count=MAX_PRODUCT_IDS)


# Returns groups of products that go with the given products, best group first. Products within a group rank equally.
Ranking = Callable[[Catalog, Sequence[str]], Sequence[Collection[str]]]


def same_category(catalog: Catalog, given: Sequence[str]) -> Sequence[Collection[str]]:
    return [catalog.related(given, lambda product: product.categories)]


def same_price_band(catalog: Catalog, given: Sequence[str]) -> Sequence[Collection[str]]:
    return [catalog.related(given, lambda product: [bisect_right(_PRICE_BANDS, product.price)])]


class Purchases:
    """Counts how often products were bought together."""

    def __init__(self, purchases: Iterable[Collection[str]]) -> None:
        self._counts: dict[str, Counter[str]] = {}
        for purchase in purchases:
            for product_id in purchase:
                self._counts.setdefault(product_id, Counter()).update(purchase)

    def rank(self, _catalog: Catalog, given: Sequence[str]) -> Sequence[Collection[str]]:
        """Rank products by how often they were bought together with the given products."""
        counts: Counter[str] = Counter()
        for product_id in given:
            counts.update(self._counts.get(product_id, {}))
        ids_by_count: dict[int, set[str]] = {}
        for product_id, count in counts.items():
            ids_by_count.setdefault(count, set()).add(product_id)
        return [ids_by_count[count] for count in sorted(ids_by_count, reverse=True)]


def recommend(catalog: Catalog, user_id: str, product_ids: Iterable[str], rank: Ranking = same_category) -> list[str]:
    """Choose up to MAX_RECOMMENDED products other than the given ones: the best-ranked products first, then any others.

    The choice is pseudorandom, but the same in all processes for the same user, products (in any order) and catalog.
    """
    given = sorted(set(product_ids))
    choice = random.Random("\0".join([user_id, *given]))  # noqa: S311 - not used for secrets
    left = set(catalog.ids).difference(given)
    chosen: list[str] = []
    for equals in (*rank(catalog, given), catalog.ids):
        candidates = left.intersection(equals)
        left -= candidates
        # Sort the candidates, because a set's order differs between processes.
        chosen += choice.sample(sorted(candidates), min(len(candidates), MAX_RECOMMENDED - len(chosen)))
    return chosen
