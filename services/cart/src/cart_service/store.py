"""Carts in the memory of one process: lost when it ends, and not shared between replicas."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from typing_extensions import override

from cart_service.domain import (
    MAX_LINES,
    MAX_QUANTITY,
    Addition,
    Cart,
    CartFull,
    CartStore,
    Line,
    NewQuantity,
    Purchase,
    QuantityTooLarge,
    generation_of,
    new_etag,
)
from chassis.errors import IdempotencyKeyReused

K = TypeVar("K")
V = TypeVar("V")

MAX_CARTS = 50_000
MAX_KEYS = 20_000
KEY_TTL_SECONDS = 24 * 3600.0
"""How long an idempotency key is stored; the oldest are evicted earlier when there are more than MAX_KEYS."""


@dataclass(slots=True)
class _Contents:
    """Quantities and their etag. Without quantities, the etag is what an order named the cart by that it emptied."""

    quantities: dict[str, int] = field(default_factory=dict)
    etag: str = ""


class MemoryCartStore(CartStore):
    """A store whose methods contain no `await`, which makes them atomic.

    Args:
        ttl_seconds: lifetime of a cart after its last change. Beyond MAX_CARTS the least recently changed cart is
            evicted.
        clock: monotonic seconds.
    """

    def __init__(self, ttl_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._carts = _ExpiringDict[str, _Contents](ttl_seconds, MAX_CARTS, clock)
        self._keys = _ExpiringDict[tuple[str, str], Addition](KEY_TTL_SECONDS, MAX_KEYS, clock)

    @override
    async def add(self, addition: Addition) -> bool:
        if addition.key is not None and self._is_repeated(addition, addition.key):
            return False
        contents = self._carts.get(addition.user_id) or _Contents()
        quantity = _new_quantity(contents.quantities, addition)
        etag = new_etag(contents.etag if contents.quantities else "")
        self._carts.put(addition.user_id, _Contents({**contents.quantities, addition.product_id: quantity}, etag))
        if addition.key is not None:
            self._keys.put((addition.user_id, addition.key), addition)
        return True

    @override
    async def read(self, user_id: str) -> Cart:
        contents = self._carts.get(user_id) or _Contents()
        lines = tuple(Line(product_id, quantity) for product_id, quantity in sorted(contents.quantities.items()))
        if not lines:
            return Cart(user_id, (), new_etag(), ordered_etag=contents.etag or None)
        return Cart(user_id, lines, contents.etag)

    @override
    async def empty(self, user_id: str, if_match: str | None) -> None:
        contents = self._carts.get(user_id)
        if contents is not None and contents.quantities and if_match in {None, contents.etag}:
            self._carts.remove(user_id)

    @override
    async def set_quantity(self, new: NewQuantity) -> None:
        contents = self._carts.get(new.user_id)
        if contents is None or new.product_id not in contents.quantities:
            return
        changed = {**contents.quantities, new.product_id: new.quantity}
        left = {product_id: quantity for product_id, quantity in changed.items() if quantity}
        if left:
            self._carts.put(new.user_id, _Contents(left, new_etag(contents.etag)))
        else:
            self._carts.remove(new.user_id)

    @override
    async def remove_ordered(self, purchase: Purchase) -> None:
        contents = self._carts.get(purchase.user_id) or _Contents()
        if not contents.quantities or generation_of(contents.etag) != generation_of(purchase.etag):
            return
        remaining = Counter(contents.quantities)
        for line in purchase.lines:
            remaining[line.product_id] -= line.quantity
        remaining = +remaining
        self._carts.put(purchase.user_id, _Contents(remaining, new_etag() if remaining else purchase.etag))

    @override
    async def check(self) -> None:
        """Do nothing: memory is always available."""

    def _is_repeated(self, addition: Addition, key: str) -> bool:
        previous = self._keys.get((addition.user_id, key))
        if previous not in {None, addition}:
            raise IdempotencyKeyReused
        return previous is not None


def _new_quantity(quantities: dict[str, int], addition: Addition) -> int:
    if addition.product_id not in quantities and len(quantities) >= MAX_LINES:
        raise CartFull
    quantity = quantities.get(addition.product_id, 0) + addition.quantity
    if quantity > MAX_QUANTITY:
        raise QuantityTooLarge
    return quantity


class _ExpiringDict(Generic[K, V]):
    """A dictionary whose entries expire; beyond its maximum size the oldest entry is evicted."""

    def __init__(self, ttl_seconds: float, max_size: int, clock: Callable[[], float]) -> None:
        self._ttl_seconds = ttl_seconds
        self._max_size = max_size
        self._clock = clock
        self._entries: dict[K, tuple[float, V]] = {}  # by insertion, and so in the order they expire

    def get(self, key: K) -> V | None:
        expires_at, value = self._entries.get(key, (0.0, None))
        return value if self._clock() < expires_at else None

    def put(self, key: K, value: V) -> None:
        """Store the value and restart its lifetime."""
        self._entries.pop(key, None)
        now = self._clock()
        self._entries[key] = (now + self._ttl_seconds, value)
        while len(self._entries) > self._max_size or next(iter(self._entries.values()))[0] <= now:
            del self._entries[next(iter(self._entries))]

    def remove(self, key: K) -> None:
        self._entries.pop(key, None)
