"""The products on sale, with lookup by id and full-text search."""

import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from chassis.errors import NotFound
from chassis.values.fields import limit_text, require_text
from chassis.values.money import Money

MAX_ID_LENGTH = 64
MAX_QUERY_LENGTH = 256

_NAME, _CATEGORY, _DESCRIPTION = 3, 2, 1
_LAST_CODE_POINT = "\U0010ffff"


class ProductNotFound(NotFound):
    """No product has this id."""


@dataclass(frozen=True, slots=True)
class Product:
    """A product on sale.

    Attributes:
        picture: path of the image.
        price: in USD.
        categories: labels such as kitchen.
    """

    id: str
    name: str
    description: str
    picture: str
    price: Money
    categories: tuple[str, ...]


class Catalog:
    """All products, in a fixed order. Raises ValueError for an empty catalog and for duplicate ids."""

    def __init__(self, products: Iterable[Product]) -> None:
        self.products = tuple(products)
        if not self.products:
            raise ValueError("there must be at least one product")
        self._by_id: dict[str, Product] = {}
        for product in self.products:
            if product.id in self._by_id:
                raise ValueError(f"two products have the id {product.id}")
            self._by_id[product.id] = product
        self._index = _WordIndex(self.products)

    def find(self, product_id: str) -> Product:
        """Return the product with this id. Raise ProductNotFound, or InvalidArgument for a malformed id."""
        product = self._by_id.get(product_id)
        if product is None:
            require_text(product_id, "id", max_length=MAX_ID_LENGTH)
            raise ProductNotFound("no product has this id")
        return product

    def search(self, query: str) -> list[Product]:
        """Return the products that match every word of the query, best match first.

        A product matches a word if its name, categories or description contain it or a word that begins with it. A
        match in the name ranks above one in a category, which ranks above one in the description; a whole word ranks
        above a prefix; products of equal rank are in the order of the catalog. Punctuation only separates words: a
        query without a word finds nothing. Raise InvalidArgument beyond MAX_QUERY_LENGTH characters.
        """
        limit_text(query, "query", max_length=MAX_QUERY_LENGTH)
        scores = self._index.scores(set(_words(query)))
        return [self.products[position] for position in sorted(scores, key=lambda found: (-scores[found], found))]


class _WordIndex:
    """Maps each word to the positions of the products that contain it, with the weight of the field it occurs in."""

    def __init__(self, products: Iterable[Product]) -> None:
        self._weights: dict[str, dict[int, int]] = {}
        for position, product in enumerate(products):
            # In rising weight, so that the weight of the most important field remains.
            for weight, text in (
                (_DESCRIPTION, product.description),
                (_CATEGORY, " ".join(product.categories)),
                (_NAME, product.name),
            ):
                for word in _words(text):
                    self._weights.setdefault(word, {})[position] = weight
        self._vocabulary = sorted(self._weights)

    def scores(self, words: Iterable[str]) -> dict[int, int]:
        """Return the positions of the products that match all words, with their scores; higher is better."""
        scores_by_word = [self._prefix_scores(word) for word in words]
        if not scores_by_word:
            return {}
        matches = set.intersection(*map(set, scores_by_word))
        return {position: sum(scores[position] for scores in scores_by_word) for position in matches}

    def _prefix_scores(self, prefix: str) -> dict[int, int]:
        best: dict[int, int] = {}
        for word in self._words_with_prefix(prefix):
            for position, weight in self._weights[word].items():
                best[position] = max(best.get(position, 0), 2 * weight - (word != prefix))
        return best

    def _words_with_prefix(self, prefix: str) -> list[str]:
        first = bisect_left(self._vocabulary, prefix)
        return self._vocabulary[first : bisect_left(self._vocabulary, prefix + _LAST_CODE_POINT)]


def _words(text: str) -> Iterator[str]:
    """Split text into words of letters, marks and digits, independent of case and Unicode normalization."""
    folded = unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())
    return iter("".join(c if unicodedata.category(c)[0] in "LMN" else " " for c in folded).split())
