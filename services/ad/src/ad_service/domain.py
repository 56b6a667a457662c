"""Ads, and how to select them by context keys."""

from collections.abc import Iterable, Sequence
from typing import Annotated

from msgspec import Meta, Struct

from chassis.values.fields import limit_count

MAX_CONTEXT_KEYS = 100


class Ad(Struct, frozen=True, forbid_unknown_fields=True):
    """A short text that links to a page. `redirect_url` is a path, so ads can only link to the shop's own pages.

    The ad is shown on pages with a keyword in `contexts`, ignoring case. An ad without contexts is a house ad, which
    is shown on pages that no other ad matches.
    """

    redirect_url: Annotated[str, Meta(pattern=r"^/[!-~]*\Z", max_length=256)]
    text: Annotated[str, Meta(pattern=r"\S", max_length=120)]
    contexts: tuple[Annotated[str, Meta(pattern=r"\S", max_length=64)], ...] = ()


class Inventory:
    """All ads, by context. Raises ValueError if there is no house ad, because every page must get an ad."""

    def __init__(self, ads: Iterable[Ad]) -> None:
        self._by_context: dict[str, list[Ad]] = {}
        self._house: list[Ad] = []
        for ad in ads:
            if not ad.contexts:
                self._house.append(ad)
            for context in {_normalize(context) for context in ad.contexts}:
                self._by_context.setdefault(context, []).append(ad)
        if not self._house:
            raise ValueError("at least one ad must have no contexts, to be shown where no other fits")

    def select(self, context_keys: Sequence[str]) -> list[Ad]:
        """Return each key's ads, in the order of the keys and without duplicates. If none match, return the house ads.

        Raise InvalidArgument if there are more than MAX_CONTEXT_KEYS keys.
        """
        limit_count(context_keys, "context_keys", max_count=MAX_CONTEXT_KEYS)
        selected = dict.fromkeys(ad for key in context_keys for ad in self._by_context.get(_normalize(key), ()))
        return list(selected) or self._house


def _normalize(context: str) -> str:
    return context.strip().casefold()
