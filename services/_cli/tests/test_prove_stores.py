"""Real databases still have what they acknowledged after a kill and a restart."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import redis

from shop_cli.local.ports import reserved
from shop_cli.prove.stores import Postgres, Valkey


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that other users may enter, which pytest's own need not be."""
    with tempfile.TemporaryDirectory(prefix="shop-postgres-", ignore_cleanup_errors=True) as name:
        yield Path(name)


@pytest.fixture
def port() -> Iterator[int]:
    with reserved(1) as (port,):
        yield port


async def test_postgres_has_committed_data_after_an_immediate_shutdown(folder: Path) -> None:
    async with await Postgres.create(folder / "postgres") as server:
        await server.create_database("shop")
        with psycopg.connect(server.url("shop"), autocommit=True) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 1 AS number")
        server.kill()
        await server.wait()
        await server.start()
        await server.wait_until_serving()
        with psycopg.connect(server.url("shop")) as connection:
            assert connection.execute("SELECT number FROM kept").fetchall() == [(1,)]


async def test_valkey_has_acknowledged_data_after_a_kill(tmp_path: Path, port: int) -> None:
    async with Valkey(tmp_path, port) as server:
        with redis.Redis.from_url(server.url) as client:
            # With the default (everysec) a write is acknowledged before it is in the file while an fsync is slow.
            assert client.config_get("appendfsync") == {"appendfsync": "always"}
            client.set("kept", "1")
        server.kill()
        await server.wait()
        await server.start()
        await server.wait_until_serving()
        with redis.Redis.from_url(server.url) as client:
            assert client.get("kept") == b"1"
