"""Carts in Valkey or Redis: they outlive the process, and all replicas share them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar, cast

import structlog
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from cart_service.domain import (
    MAX_LINES,
    MAX_QUANTITY,
    Addition,
    Cart,
    CartFull,
    Line,
    QuantityTooLarge,
    StoreUnavailable,
    new_etag,
)
from cart_service.store import KEY_TTL_SECONDS
from chassis.errors import IdempotencyKeyReused

log = structlog.get_logger()

T = TypeVar("T")

_ETAG = ""
"""The field of a cart's hash that holds its etag; no product has an empty id."""

_MAX_CONNECTIONS = 64
_KEY_TTL_MILLISECONDS = int(KEY_TTL_SECONDS * 1000)
_REFUSALS = {"full": CartFull, "too large": QuantityTooLarge, "reused": IdempotencyKeyReused}


@asynccontextmanager
async def connected(url: str, ttl_seconds: float, timeout_seconds: float = 0.9) -> AsyncIterator["ValkeyCartStore"]:
    """Carts in the server at `redis://`, `rediss://` or `unix://`; connects when first used."""
    # An addition whose reply was lost may have been made: only the caller, who has its key, may ask again.
    never = Retry(NoBackoff(), 0)
    pool = BlockingConnectionPool.from_url(
        url,
        max_connections=_MAX_CONNECTIONS,
        timeout=None,
        protocol=2,
        decode_responses=True,
        retry=never,
        socket_timeout=None,
        socket_connect_timeout=None,
    )
    async with Redis.from_pool(pool) as client:
        yield ValkeyCartStore(client, ttl_seconds, timeout_seconds)


class ValkeyCartStore:
    """A CartStore of hashes, each write one command or one script.

    Args:
        client: decodes responses.
        ttl_seconds: from a cart's last change to its end.
        timeout_seconds: of each operation, connecting included.
    """

    def __init__(self, client: Redis, ttl_seconds: float, timeout_seconds: float) -> None:
        self._client = client
        self._ttl_milliseconds = int(ttl_seconds * 1000)
        self._timeout_seconds = timeout_seconds
        self._add = client.register_script(_script("add"))
        self._empty = client.register_script(_script("empty"))

    async def add(self, addition: Addition) -> None:
        """See CartStore."""
        cart = _cart_key(addition.user_id)
        added = (addition.product_id, addition.quantity, new_etag(), self._ttl_milliseconds, MAX_LINES, MAX_QUANTITY)
        if addition.key is None:
            answer = self._add([cart], added)
        else:
            fingerprint = f"{addition.quantity} {addition.product_id}"
            known = _known_key(addition.user_id, addition.key)
            answer = self._add([cart, known], (*added, fingerprint, _KEY_TTL_MILLISECONDS))
        outcome = await self._ask(answer)
        if outcome in _REFUSALS:
            raise _REFUSALS[outcome]

    async def read(self, user_id: str) -> Cart:
        """See CartStore."""
        fields = await self._ask(cast("Awaitable[Mapping[str, str]]", self._client.hgetall(_cart_key(user_id))))
        etag = fields.get(_ETAG) or new_etag()
        lines = tuple(Line(product_id, int(quantity)) for product_id, quantity in sorted(fields.items()) if product_id)
        return Cart(user_id, lines, etag)

    async def empty(self, user_id: str, if_match: str | None) -> None:
        """See CartStore."""
        if if_match is None:
            await self._ask(self._client.delete(_cart_key(user_id)))
        else:
            await self._ask(self._empty([_cart_key(user_id)], [if_match]))

    async def check(self) -> None:
        """See CartStore."""
        await self._ask(self._client.ping())

    async def _ask(self, answer: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(self._timeout_seconds):
                return await answer
        except (RedisError, OSError) as error:  # a timeout is an OSError too
            log.warning("store unavailable", problem=type(error).__name__, detail=str(error))
            raise StoreUnavailable from None


def _script(name: str) -> str:
    return (Path(__file__).parent / f"{name}.lua").read_text(encoding="utf-8")


def _cart_key(user_id: str) -> str:
    return f"cart:{user_id}"


def _known_key(user_id: str, key: str) -> str:
    """The length keeps apart ids and keys that hold colons themselves."""
    return f"cart-key:{len(user_id)}:{user_id}:{key}"
