"""Ads, and which of them fit a page."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from chassis.fields import limit_count

MAX_CONTEXT_KEYS = 100


@dataclass(frozen=True, slots=True)
class Ad:
    """A short text and the page it leads to.

    Its contexts are the key words of pages it fits, in any case. An ad without contexts is a house ad: it fits where
    nothing else does.
    """

    redirect_url: str
    text: str
    contexts: tuple[str, ...] = ()


class Inventory:
    """All the ads there are. Raises ValueError unless one of them is a house ad: every page gets some ad."""

    def __init__(self, ads: Iterable[Ad]) -> None:
        self._by_context: dict[str, list[Ad]] = {}
        self._house: list[Ad] = []
        for ad in ads:
            if not ad.contexts:
                self._house.append(ad)
            for context in {_folded(context) for context in ad.contexts}:
                self._by_context.setdefault(context, []).append(ad)
        if not self._house:
            raise ValueError("one ad at least must be without contexts, to be shown where no other fits")

    @property
    def contexts(self) -> frozenset[str]:
        """The key words that have ads, casefolded."""
        return frozenset(self._by_context)

    def fitting(self, context_keys: Sequence[str]) -> list[Ad]:
        """Find the ads of each key in turn, each ad once; the house ads when no key has any.

        Raises InvalidArgument for more than 100 keys.
        """
        limit_count(context_keys, "context_keys", max_count=MAX_CONTEXT_KEYS)
        found = dict.fromkeys(ad for key in context_keys for ad in self._by_context.get(_folded(key), ()))
        return list(found) or self._house


def _folded(context: str) -> str:
    return context.strip().casefold()
