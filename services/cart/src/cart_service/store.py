"""Stores carts in memory: carts are lost when the process ends, and replicas do not share them."""

import time
from collections.abc import Callable
from typing import Generic, TypeVar

from cart_service.domain import KEY_TTL_SECONDS, Addition, Cart, CartStore, NewQuantity, Purchase
from chassis.errors import IdempotencyKeyReused

K = TypeVar("K")
V = TypeVar("V")

MAX_CARTS = 50_000
MAX_KEYS = 20_000


class MemoryCartStore(CartStore):
    """Stores carts in a dictionary. Its methods are atomic, because they never await.

    Evicts the least recently changed cart beyond MAX_CARTS, and the oldest idempotency key beyond MAX_KEYS.
    """

    def __init__(self, ttl_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._carts = _ExpiringDict[str, Cart](ttl_seconds, MAX_CARTS, clock)
        self._keys = _ExpiringDict[tuple[str, str], Addition](KEY_TTL_SECONDS, MAX_KEYS, clock)

    async def add(self, addition: Addition) -> bool:
        key = (addition.user_id, addition.key) if addition.key else None
        if key and (previous := self._keys.get(key)):
            if previous != addition:
                raise IdempotencyKeyReused
            return False
        self._replace(addition.user_id, self._cart(addition.user_id).add(addition))
        if key:
            self._keys.put(key, addition)
        return True

    async def read(self, user_id: str) -> Cart:
        return self._cart(user_id)

    async def empty(self, user_id: str, if_match: str | None) -> None:
        self._replace(user_id, self._cart(user_id).empty(if_match))

    async def set_quantity(self, new: NewQuantity) -> None:
        self._replace(new.user_id, self._cart(new.user_id).set_quantity(new))

    async def remove_ordered(self, purchase: Purchase) -> None:
        self._replace(purchase.user_id, self._cart(purchase.user_id).remove_ordered(purchase))

    async def check(self) -> None:
        pass

    def _cart(self, user_id: str) -> Cart:
        return self._carts.get(user_id) or Cart()

    def _replace(self, user_id: str, cart: Cart) -> None:
        if cart is self._carts.get(user_id):
            return
        if cart.etag:
            self._carts.put(user_id, cart)
        else:
            self._carts.remove(user_id)


class _ExpiringDict(Generic[K, V]):
    """A dictionary whose entries expire. Beyond the maximum size, `put` evicts the oldest entry."""

    def __init__(self, ttl_seconds: float, max_size: int, clock: Callable[[], float]) -> None:
        self._ttl_seconds = ttl_seconds
        self._max_size = max_size
        self._clock = clock
        self._entries: dict[K, tuple[float, V]] = {}  # sorted by expiry time

    def get(self, key: K) -> V | None:
        expires_at, value = self._entries.get(key, (0.0, None))
        return value if self._clock() < expires_at else None

    def put(self, key: K, value: V) -> None:
        """Store the value and reset its time to live."""
        self._entries.pop(key, None)
        now = self._clock()
        self._entries[key] = (now + self._ttl_seconds, value)
        while len(self._entries) > self._max_size or next(iter(self._entries.values()))[0] <= now:
            del self._entries[next(iter(self._entries))]

    def remove(self, key: K) -> None:
        self._entries.pop(key, None)
