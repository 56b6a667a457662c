"""Carts in the memory of one process: gone when it ends, and not shared with another."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from cart_service.domain import (
    MAX_LINES,
    MAX_QUANTITY,
    Addition,
    Cart,
    CartFull,
    Line,
    QuantityTooLarge,
    new_etag,
)
from chassis.errors import IdempotencyKeyReused

K = TypeVar("K")
V = TypeVar("V")

MAX_CARTS = 50_000
MAX_KEYS = 20_000
KEY_TTL_SECONDS = 24 * 3600.0
"""How long an addition's key is known; a shorter time for the oldest ones when there are more than MAX_KEYS."""


@dataclass(slots=True)
class _Contents:
    quantities: dict[str, int] = field(default_factory=dict)
    etag: str = ""


class MemoryCartStore:
    """A CartStore whose methods never wait, so that nothing comes between their steps.

    Args:
        ttl_seconds: from a cart's last change to its end. The cart unchanged for longest ends sooner when there are
            more than MAX_CARTS.
        clock: monotonic seconds.
    """

    def __init__(self, ttl_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._carts = _Expiring[str, _Contents](ttl_seconds, MAX_CARTS, clock)
        self._keys = _Expiring[tuple[str, str], Addition](KEY_TTL_SECONDS, MAX_KEYS, clock)

    async def add(self, addition: Addition) -> None:
        """See CartStore."""
        if addition.key is not None and self._is_done(addition, addition.key):
            return
        contents = self._carts.get(addition.user_id) or _Contents()
        contents.quantities[addition.product_id] = _increased(contents.quantities, addition)
        contents.etag = new_etag()
        self._carts.put(addition.user_id, contents)
        if addition.key is not None:
            self._keys.put((addition.user_id, addition.key), addition)

    async def read(self, user_id: str) -> Cart:
        """See CartStore."""
        contents = self._carts.get(user_id)
        if contents is None:
            return Cart(user_id, (), new_etag())
        lines = tuple(Line(product_id, quantity) for product_id, quantity in sorted(contents.quantities.items()))
        return Cart(user_id, lines, contents.etag)

    async def empty(self, user_id: str, if_match: str | None) -> None:
        """See CartStore."""
        contents = self._carts.get(user_id)
        if contents is not None and if_match in {None, contents.etag}:
            self._carts.remove(user_id)

    async def check(self) -> None:
        """Memory always answers."""

    def _is_done(self, addition: Addition, key: str) -> bool:
        done = self._keys.get((addition.user_id, key))
        if done not in {None, addition}:
            raise IdempotencyKeyReused
        return done is not None


def _increased(quantities: dict[str, int], addition: Addition) -> int:
    if addition.product_id not in quantities and len(quantities) >= MAX_LINES:
        raise CartFull
    quantity = quantities.get(addition.product_id, 0) + addition.quantity
    if quantity > MAX_QUANTITY:
        raise QuantityTooLarge
    return quantity


class _Expiring(Generic[K, V]):
    """A dictionary that forgets what was not put for a while, and the oldest when it holds too much."""

    def __init__(self, ttl_seconds: float, max_size: int, clock: Callable[[], float]) -> None:
        self._ttl_seconds = ttl_seconds
        self._max_size = max_size
        self._clock = clock
        self._entries: dict[K, tuple[float, V]] = {}  # in the order of their ends, which is that of their puts

    def get(self, key: K) -> V | None:
        """Tell the value, unless its time is over."""
        ends_at, value = self._entries.get(key, (0.0, None))
        return value if self._clock() < ends_at else None

    def put(self, key: K, value: V) -> None:
        """Keep the value, for the whole time again."""
        self._entries.pop(key, None)
        self._entries[key] = (self._clock() + self._ttl_seconds, value)
        self._forget()

    def remove(self, key: K) -> None:
        """Forget the value."""
        self._entries.pop(key, None)

    def _forget(self) -> None:
        now = self._clock()
        while self._entries:
            oldest = next(iter(self._entries))
            if len(self._entries) <= self._max_size and now < self._entries[oldest][0]:
                return
            del self._entries[oldest]
