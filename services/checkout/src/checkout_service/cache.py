"""Answers of peers, kept for a short time; callers who miss the same one at once share one call."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from chassis import calls

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_MAX_ENTRIES = 10_000


class SharedCache(Generic[K, V]):
    """Fetches what it does not have. A failed fetch is kept by nobody and told to all who wait for it.

    Args:
        fetch: asks the peer.
        ttl_seconds: how long an answer is good for.
    """

    def __init__(self, fetch: Callable[[K], Awaitable[V]], ttl_seconds: float) -> None:
        self._fetch = fetch
        self._ttl_seconds = ttl_seconds
        self._values: dict[K, tuple[float, V]] = {}
        self._flights: dict[K, asyncio.Task[V]] = {}

    async def get(self, *keys: K) -> list[V]:
        """The kept answers, and fresh ones where there are none, in the order of the keys. Raises what a fetch raises.

        Answers that are all there cost no task: on most orders they are.
        """
        now = asyncio.get_running_loop().time()
        found = {key: kept[1] for key in keys if (kept := self._values.get(key)) and kept[0] > now}
        missing = [key for key in dict.fromkeys(keys) if key not in found]
        if missing:
            flights = [asyncio.shield(self._flight(key)) for key in missing]
            found.update(zip(missing, await asyncio.gather(*flights), strict=True))
        return [found[key] for key in keys]

    def _flight(self, key: K) -> asyncio.Task[V]:
        flight = self._flights.get(key)
        if flight is None:
            flight = self._flights[key] = asyncio.create_task(self._fly(key), name="shared fetch")
            flight.add_done_callback(_retrieve)
        return flight

    async def _fly(self, key: K) -> V:
        calls.deadline.set(None)  # the first caller's deadline is not the others'
        try:
            value = await self._fetch(key)
        finally:
            del self._flights[key]
        if len(self._values) >= _MAX_ENTRIES:
            del self._values[next(iter(self._values))]
        self._values[key] = (asyncio.get_running_loop().time() + self._ttl_seconds, value)
        return value


def _retrieve(flight: "asyncio.Task[V]") -> None:
    """Whoever waited may have been cancelled: then nobody else looks at the flight's error."""
    if not flight.cancelled():
        flight.exception()
