import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

import structlog

from chassis.background import mark_retrieved, shared_result
from chassis.deadline import deadline
from chassis.errors import DomainError
from chassis.telemetry import semconv
from chassis.telemetry.instruments import Telemetry

log = structlog.get_logger()

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_MAX_ENTRIES = 10_000  # when the cache is full, a new entry evicts the oldest
RETRY_SECONDS = 1.0  # how long to wait after a failed refresh before trying again


@dataclass(slots=True)
class _Entry(Generic[V]):
    value: V
    fresh_until: float


class TtlCache(Generic[K, V]):
    """A cache whose entries expire. Concurrent lookups of a missing key share one fetch and, if it fails, its error.

    With `serve_stale`, `get` returns an expired value at once and refreshes it in the background. If the refresh fails,
    the expired value stays in use. Fetches in flight end when their channel is closed.
    """

    def __init__(
        self,
        fetch: Callable[[K], Awaitable[V]],
        ttl_seconds: float,
        name: str = "",
        telemetry: Telemetry | None = None,
        *,
        serve_stale: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fetch = fetch
        self._ttl_seconds = ttl_seconds
        self._serve_stale = serve_stale
        self._clock = clock
        self._entries: dict[K, _Entry[V]] = {}
        self._fetches: dict[K, asyncio.Task[V]] = {}
        self._lookups = (telemetry or Telemetry()).counter(semconv.CACHE_LOOKUPS)
        self._hit, self._stale, self._miss = (
            ((semconv.CACHE_NAME, name), (semconv.CACHE_RESULT, result)) for result in ("hit", "stale", "miss")
        )

    async def get(self, *keys: K) -> list[V]:
        now = self._clock()
        entries = [self._usable(key, now) for key in keys]
        fetches = [
            shared_result(self._start_fetch(key)) for key, entry in zip(keys, entries, strict=True) if entry is None
        ]
        fetched = iter(await asyncio.gather(*fetches) if fetches else ())
        return [next(fetched) if entry is None else entry.value for entry in entries]

    def _usable(self, key: K, now: float) -> _Entry[V] | None:
        entry = self._entries.get(key)
        if entry is None or (now >= entry.fresh_until and not self._serve_stale):
            self._lookups.add(1, self._miss)
            return None
        if now < entry.fresh_until:
            self._lookups.add(1, self._hit)
            return entry
        self._lookups.add(1, self._stale)
        self._start_fetch(key)
        return entry

    def _start_fetch(self, key: K) -> "asyncio.Task[V]":
        fetch = self._fetches.get(key)
        if fetch is None:
            fetch = self._fetches[key] = asyncio.create_task(self._fetch_and_store(key), name="cache fetch")
            fetch.add_done_callback(mark_retrieved)
        return fetch

    async def _fetch_and_store(self, key: K) -> V:
        deadline.set(None)  # don't inherit the first caller's deadline: callers with more time may share this fetch
        try:
            value = await self._fetch(key)
        except Exception as error:
            if self._serve_stale and (stale := self._entries.get(key)) is not None:
                stale.fresh_until = self._clock() + RETRY_SECONDS
                unexpected = not isinstance(error, DomainError)
                log.warning("refresh failed, serving the stale value", key=str(key), exc_info=unexpected)
            raise
        finally:
            del self._fetches[key]
        if key not in self._entries and len(self._entries) >= _MAX_ENTRIES:
            del self._entries[next(iter(self._entries))]
        self._entries[key] = _Entry(value, self._clock() + self._ttl_seconds)
        return value
