"""Stores carts in Valkey or Redis, which all replicas share. Carts survive restarts of the service."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

import structlog
from redis.asyncio import BlockingConnectionPool, Redis, SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from typing_extensions import override

from cart_service.domain import (
    ANONYMOUS_TTL_SECONDS,
    KEY_TTL_SECONDS,
    MAX_LINES,
    MAX_QUANTITY,
    Addition,
    Cart,
    CartFull,
    CartStore,
    NewQuantity,
    Purchase,
    QuantityTooLarge,
    StoreUnavailable,
    new_etag,
)
from chassis.errors import IdempotencyKeyReused
from chassis.telemetry import semconv
from chassis.telemetry.instruments import Telemetry
from chassis.telemetry.store_operations import Operation, PoolTelemetry, StoreTelemetry

log = structlog.get_logger()

T = TypeVar("T")

_ETAG = ""
"""The hash field that holds a cart's etag. The other fields are product ids, which are never empty.

If an order emptied the cart, this is the only field. It then holds the ordered cart's etag or generation.
"""

_MAX_CONNECTIONS = 64
_UNLIMITED: Mapping[str, Any] = dict.fromkeys(("timeout", "socket_timeout", "socket_connect_timeout"))
_KEY_TTL_MILLISECONDS = int(KEY_TTL_SECONDS * 1000)
_ANONYMOUS_TTL_MILLISECONDS = int(ANONYMOUS_TTL_SECONDS * 1000)
_CUSTOMERS = "carts"
"""The sorted set that indexes customers' carts by expiry time."""
_READ = Operation("HGETALL", "HGETALL cart")
_SCRIPTS = {
    script: Operation("EVALSHA", f"EVALSHA {script}")
    for script in ("add", "empty", "set_quantity", "remove_ordered", "check")
}
_REPEATED = "repeated"
_REFUSALS = {"full": CartFull, "too large": QuantityTooLarge, "reused": IdempotencyKeyReused}


@asynccontextmanager
async def open_valkey_store(
    url: str, ttl_seconds: float, timeout_seconds: float = 0.9, telemetry: Telemetry | None = None
) -> AsyncIterator["ValkeyCartStore"]:
    """Open a store at a URL. The store connects on first use. Raise OSError if the URL has an invalid option."""
    # Never retry: an addition whose response is lost may have taken effect. Callers with an idempotency key may retry.
    never = Retry(NoBackoff(), 0)
    try:
        pool = ValkeyPool.from_url(
            url, max_connections=_MAX_CONNECTIONS, protocol=2, decode_responses=True, retry=never, **_UNLIMITED
        )
        pool.make_connection()  # type: ignore[no-untyped-call] # checks the URL's options
    except (ValueError, TypeError):
        raise OSError("REDIS_URL: an option after the ? is unknown or has an invalid value") from None
    if issubclass(pool.connection_class, SSLConnection):
        pool.connection_class = RereadingConnection
    store = pool.measure(telemetry or Telemetry())
    async with Redis.from_pool(pool) as client:
        yield ValkeyCartStore(client, ttl_seconds, timeout_seconds, store)


class RereadingConnection(SSLConnection):
    """Rereads the certificate files on every connect; by default, redis-py reads them only once."""

    @override
    async def connect(self) -> None:
        if not self.is_connected:
            self.ssl_context.context = None
        await super().connect()  # type: ignore[no-untyped-call]


class ValkeyPool(BlockingConnectionPool):
    """A connection pool that records how long callers wait for a connection. Call `measure` first."""

    _telemetry: PoolTelemetry

    def measure(self, telemetry: Telemetry) -> StoreTelemetry:
        """Start recording connection use and wait times. Return the telemetry for store operations."""
        server: Mapping[str, Any] = self.connection_kwargs
        # The semantic conventions call every server that speaks the Redis protocol `redis`.
        store = StoreTelemetry(
            telemetry, "redis", str(server.get("db") or 0), server.get("host") or server.get("path"), server.get("port")
        )
        self._telemetry = PoolTelemetry(telemetry, store.name, self.max_connections, self.use)
        return store

    @override
    async def get_connection(self, *arguments: Any, **options: Any) -> Any:
        with self._telemetry.measure_wait():
            return await super().get_connection(*arguments, **options)  # type: ignore[no-untyped-call]

    def use(self) -> dict[str, int]:
        return {str(attributes[semconv.POOL_STATE]): count for count, attributes in self.get_connection_count()}


class ValkeyCartStore(CartStore):
    """Stores each cart as a hash. Every write is a single Lua script, and therefore atomic.

    `client` must decode responses; `timeout_seconds` limits each operation, including connecting.
    """

    def __init__(self, client: Redis, ttl_seconds: float, timeout_seconds: float, store: StoreTelemetry) -> None:
        self._client = client
        self._store = store
        self._ttl_milliseconds = int(ttl_seconds * 1000)
        self._timeout_seconds = timeout_seconds
        folder = Path(__file__).parent
        texts = {name: (folder / f"{name}.lua").read_text("utf-8") for name in ("lifetime", *_SCRIPTS)}
        self._scripts = {name: client.register_script(texts["lifetime"] + texts[name]) for name in _SCRIPTS}

    async def add(self, addition: Addition) -> bool:
        keys = [_cart_key(addition.user_id), _CUSTOMERS]
        brief = _ANONYMOUS_TTL_MILLISECONDS if addition.anonymous else ""
        item = (addition.product_id, addition.quantity)
        arguments: list[str | int] = [*item, new_etag(), self._ttl_milliseconds, brief, MAX_LINES, MAX_QUANTITY]
        if addition.key is not None:
            keys.append(_idempotency_key(addition.user_id, addition.key))
            fingerprint = f"{addition.quantity} {addition.product_id}"
            arguments += [fingerprint, brief or _KEY_TTL_MILLISECONDS]
        outcome = await self._evaluate("add", keys, arguments)
        if outcome in _REFUSALS:
            raise _REFUSALS[outcome]
        return bool(outcome != _REPEATED)

    async def read(self, user_id: str) -> Cart:
        fields = await self._run(_READ, cast("Awaitable[dict[str, str]]", self._client.hgetall(_cart_key(user_id))))
        etag = fields.pop(_ETAG, "")
        return Cart({product_id: int(quantity) for product_id, quantity in fields.items()}, etag)

    async def empty(self, user_id: str, if_match: str | None) -> None:
        await self._evaluate("empty", [_cart_key(user_id), _CUSTOMERS], [] if if_match is None else [if_match])

    async def set_quantity(self, new: NewQuantity) -> None:
        arguments: list[str | int] = [new.product_id, new.quantity, new_etag(), self._ttl_milliseconds]
        arguments.append(_ANONYMOUS_TTL_MILLISECONDS)
        await self._evaluate("set_quantity", [_cart_key(new.user_id), _CUSTOMERS], arguments)

    async def remove_ordered(self, purchase: Purchase) -> None:
        lines = [field for line in purchase.lines for field in (line.product_id, line.quantity)]
        arguments = [purchase.etag, new_etag(), self._ttl_milliseconds, *lines]
        await self._evaluate("remove_ordered", [_cart_key(purchase.user_id), _CUSTOMERS], arguments)

    async def check(self) -> None:
        await self._evaluate("check", [_cart_key(""), _CUSTOMERS, _idempotency_key("", "")], [])

    async def _evaluate(self, script: str, keys: list[str], arguments: list[str | int]) -> Any:
        return await self._run(_SCRIPTS[script], self._scripts[script](keys, arguments))

    async def _run(self, operation: Operation, response: Awaitable[T]) -> T:
        try:
            with self._store.measure(operation):
                async with asyncio.timeout(self._timeout_seconds):
                    return await response
        except (RedisError, OSError) as error:  # TimeoutError is an OSError, too
            log.warning("store unavailable", problem=type(error).__name__, detail=str(error))
            raise StoreUnavailable from None


def _cart_key(user_id: str) -> str:
    return f"cart:{user_id}"


def _idempotency_key(user_id: str, key: str) -> str:
    # Include the length to keep the key unambiguous: user ids and idempotency keys may contain colons.
    return f"cart-key:{len(user_id)}:{user_id}:{key}"
