"""The products on sale, with lookup by id and full-text search."""

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Annotated

from msgspec import Meta, Struct

from chassis.errors import NotFound
from chassis.values.fields import CONTROL, limit_text, require_text
from chassis.values.money import NANOS_PER_UNIT, Money, require_decimal

MAX_PRODUCTS = 10_000
MAX_ID_LENGTH = 64
MAX_QUERY_LENGTH = 256

_PRICE_PLACES = 9
_SMALLEST_PRICE = Decimal(1).scaleb(-_PRICE_PLACES)

# How a query word can match within a field, from worst to best: as a prefix, as a variant, or exactly.
_PREFIX, _VARIANT, _WORD, _RANKS = range(4)
_MAX_JOINED = 3
_LAST_CODE_POINT = "\U0010ffff"
_ACCENT = re.compile("[\u0300-\u036f]")
_PLURAL = re.compile("(?<=..)(?:(?<!s)s)?e?(?:(?<!s)s)?$")
# ASCII spellings of letters that Unicode normalization does not decompose.
_PLAIN = str.maketrans({"æ": "ae", "œ": "oe", "ø": "o", "đ": "d", "ł": "l", "\u0131": "i"})


class ProductNotFound(NotFound):
    """No product has this id."""


class Product(Struct, frozen=True, forbid_unknown_fields=True):
    """A product on sale. `picture` is the path to its image. Raises ValueError if the price is out of range."""

    # Forbid control characters: requests that contain them are refused, so such a product could never be requested.
    id: Annotated[str, Meta(pattern=rf"^[^ \t\n\r{CONTROL}]+\Z", max_length=MAX_ID_LENGTH)]
    name: Annotated[str, Meta(pattern=r"\S", max_length=120)]
    description: Annotated[str, Meta(pattern=r"\S", max_length=2000)]
    picture: Annotated[str, Meta(pattern=r"^[!-~]+\Z", max_length=256)]
    price_usd: Decimal
    categories: Annotated[tuple[Annotated[str, Meta(pattern=r"\S", max_length=64)], ...], Meta(min_length=1)]

    def __post_init__(self) -> None:
        highest = 10**12 - _SMALLEST_PRICE
        require_decimal("price_usd", self.price_usd, lowest=_SMALLEST_PRICE, highest=highest, places=_PRICE_PLACES)

    @property
    def price(self) -> Money:
        return Money("USD", int(self.price_usd * NANOS_PER_UNIT))


class Catalog:
    """All products, in a fixed order. Raises ValueError if there are none or too many, or if two have the same id."""

    def __init__(self, products: Iterable[Product]) -> None:
        self.products = tuple(products)
        if not 1 <= len(self.products) <= MAX_PRODUCTS:
            raise ValueError(f"there must be from 1 to {MAX_PRODUCTS:,} products")
        self._by_id: dict[str, Product] = {}
        for product in self.products:
            if product.id in self._by_id:
                raise ValueError(f"two products have the id {product.id}")
            self._by_id[product.id] = product
        self._index = _WordIndex(self.products)

    def find(self, product_id: str) -> Product:
        """Find a product by id. Raise ProductNotFound if there is none, or InvalidArgument if the id is invalid."""
        product = self._by_id.get(product_id)
        if product is None:
            require_text(product_id, "id", max_length=MAX_ID_LENGTH)
            raise ProductNotFound("no product has this id")
        return product

    def search(self, query: str) -> list[Product]:
        """Return products that match every query word, best first. Raise InvalidArgument if the query is too long.

        Name matches rank above description matches, which rank above category matches. Within a field, exact matches
        rank above variants, which rank above longer words that begin with the query word. Ties stay in catalog order.
        Variants differ in accents, English plurals or word breaks. Punctuation only separates words.
        """
        limit_text(query, "query", max_length=MAX_QUERY_LENGTH)
        scores = self._index.scores(list(dict.fromkeys(_words(query))))
        return [self.products[position] for position in sorted(scores, key=lambda found: (-scores[found], found))]


_Ranks = Mapping[int, int]
"""Maps each matching product's position in the catalog to the rank of its best match; higher is better."""


class _WordIndex:
    """Finds products that contain a word, a variant of the word, or a longer word that begins with it."""

    def __init__(self, products: Sequence[Product]) -> None:
        self._all = dict.fromkeys(range(len(products)), 0)
        self._words: dict[str, dict[int, int]] = {}
        self._variants: dict[str, dict[int, int]] = {}
        self._prefixable: dict[str, dict[int, int]] = {}
        for position, product in enumerate(products):
            # Index the least important field first, so that more important fields overwrite it.
            for field, text in enumerate((" ".join(product.categories), product.description, product.name)):
                self._add(position, field * _RANKS, list(_words(text)))
        self._vocabulary = sorted(self._prefixable)

    def __del__(self) -> None:
        for entries in (self._words, self._variants, self._prefixable):
            while entries:
                entries.popitem()  # freeing a million entries in a single step would block the event loop

    def scores(self, words: Sequence[str]) -> _Ranks:
        """Rank the products that match all words. Two or three consecutive words also match when joined into one."""
        found: list[_Ranks] = [self._all]  # found[n] ranks the products that match the first n words
        for end in range(1, len(words) + 1):
            ways = ((found[start], self._ranks(words[start:end])) for start in range(max(0, end - _MAX_JOINED), end))
            found.append(_best({at: rank + new[at] for at, rank in old.items() if at in new} for old, new in ways))
        return found[-1] if words else {}

    def _add(self, position: int, rank: int, words: Sequence[str]) -> None:
        for start, word in enumerate(words):
            self._words.setdefault(word, {})[position] = rank + _WORD
            self._prefixable.setdefault(_fold(word), {})[position] = rank + _PREFIX
            for end in range(start + 1, min(start + _MAX_JOINED, len(words)) + 1):
                self._variants.setdefault(_stem("".join(words[start:end])), {})[position] = rank + _VARIANT

    def _ranks(self, words: Sequence[str]) -> _Ranks:
        """Rank the products that match a word, or several words joined into one (scored as a match of each word)."""
        variants = self._variants.get(_stem("".join(words)), {})
        if len(words) > 1:
            return {position: len(words) * rank for position, rank in variants.items()}
        prefix = _fold(words[0])
        first, last = (bisect_left(self._vocabulary, key) for key in (prefix, prefix + _LAST_CODE_POINT))
        longer = [self._prefixable[found] for found in self._vocabulary[first:last]]
        return _best([self._words.get(words[0], {}), variants, *longer])


def _best(ways: Iterable[_Ranks]) -> _Ranks:
    best: dict[int, int] = {}
    for ranks in ways:
        for position, rank in ranks.items():
            best[position] = max(best.get(position, 0), rank)
    return best


def _words(text: str) -> Iterator[str]:
    """Split text into words of letters, marks and digits, ignoring differences in case and Unicode normalization."""
    folded = unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())
    return iter("".join(c if unicodedata.category(c)[0] in "LMN" else " " for c in folded).split())


def _fold(word: str) -> str:
    """Return a word without accents: `café` becomes `cafe`."""
    return _ACCENT.sub("", unicodedata.normalize("NFKD", word)).casefold().translate(_PLAIN) or word


def _stem(word: str) -> str:
    """Return the stem that a word shares with its English plural: `berri` for `berry` and `berries`."""
    stem = _PLURAL.sub("", _fold(word))
    return stem[:-1] + {"y": "i", "v": "f"}.get(stem[-1], stem[-1]) if len(stem) > 2 else stem  # noqa: PLR2004
