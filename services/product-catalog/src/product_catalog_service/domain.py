"""The products on sale: found by id, or by the words that tell about them."""

import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from chassis.errors import NotFound
from chassis.fields import limit_text, require_text
from chassis.money import Money

MAX_ID_LENGTH = 64
MAX_QUERY_LENGTH = 256

_NAME, _CATEGORY, _DESCRIPTION = 3, 2, 1
_AFTER_ANY_LETTER = "\U0010ffff"


class ProductNotFound(NotFound):
    """No product has the id."""


@dataclass(frozen=True, slots=True)
class Product:
    """Something on sale. Its categories are labels such as kitchen, its price is in USD, its picture a path."""

    id: str
    name: str
    description: str
    picture: str
    price: Money
    categories: tuple[str, ...]


class Catalog:
    """All products, in the order of the shelf. Raises ValueError when there are none, or two have one id."""

    def __init__(self, products: Iterable[Product]) -> None:
        self.products = tuple(products)
        if not self.products:
            raise ValueError("there must be one product at least")
        self._by_id: dict[str, Product] = {}
        for product in self.products:
            if product.id in self._by_id:
                raise ValueError(f"two products have the id {product.id}")
            self._by_id[product.id] = product
        self._index = _WordIndex(self.products)

    def find(self, product_id: str) -> Product:
        """Look up the product with this id. Raises InvalidArgument for a malformed id, ProductNotFound."""
        product = self._by_id.get(product_id)
        if product is None:
            require_text(product_id, "id", max_length=MAX_ID_LENGTH)
            raise ProductNotFound("no product has this id")
        return product

    def search(self, query: str) -> list[Product]:
        """Find the products that hold every word of the query, or a word that begins with it; the best ones first.

        A word in the name counts for more than one in a category, and that for more than one in the description; a
        whole word counts for more than a beginning; equals keep the order of the shelf. Punctuation only separates
        words: a query without any word finds nothing. Raises InvalidArgument beyond 256 characters.
        """
        limit_text(query, "query", max_length=MAX_QUERY_LENGTH)
        scores = self._index.scores(set(_words(query)))
        return [self.products[position] for position in sorted(scores, key=lambda found: (-scores[found], found))]


class _WordIndex:
    """For each word of any product: the positions of the products that hold it, with the weight of where."""

    def __init__(self, products: Iterable[Product]) -> None:
        self._weights: dict[str, dict[int, int]] = {}
        for position, product in enumerate(products):
            # The heaviest field comes last and stays.
            for weight, text in (
                (_DESCRIPTION, product.description),
                (_CATEGORY, " ".join(product.categories)),
                (_NAME, product.name),
            ):
                for word in _words(text):
                    self._weights.setdefault(word, {})[position] = weight
        self._vocabulary = sorted(self._weights)

    def scores(self, words: Iterable[str]) -> dict[int, int]:
        """Score the positions of the products that hold all the words; the more the better."""
        each = [self._scores_of(word) for word in words]
        if not each:
            return {}
        in_all = set.intersection(*map(set, each))
        return {position: sum(scores[position] for scores in each) for position in in_all}

    def _scores_of(self, beginning: str) -> dict[int, int]:
        best: dict[int, int] = {}
        for word in self._words_beginning_with(beginning):
            for position, weight in self._weights[word].items():
                best[position] = max(best.get(position, 0), 2 * weight - (word != beginning))
        return best

    def _words_beginning_with(self, beginning: str) -> list[str]:
        first = bisect_left(self._vocabulary, beginning)
        return self._vocabulary[first : bisect_left(self._vocabulary, beginning + _AFTER_ANY_LETTER)]


def _words(text: str) -> Iterator[str]:
    """Split into runs of letters, marks and digits, so that case and the form of accents don't matter."""
    folded = unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())
    return iter("".join(c if unicodedata.category(c)[0] in "LMN" else " " for c in folded).split())
