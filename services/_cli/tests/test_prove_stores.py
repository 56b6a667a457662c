"""Real databases that die and come back with what they acknowledged."""

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
    """One that other users may enter, as pytest's own may not be."""
    with tempfile.TemporaryDirectory(prefix="shop-postgres-", ignore_cleanup_errors=True) as name:
        yield Path(name)


@pytest.fixture
def port() -> Iterator[int]:
    with reserved(1) as (port,):
        yield port


async def test_postgres_keeps_what_it_committed_over_an_immediate_shutdown(folder: Path) -> None:
    async with await Postgres.created(folder / "postgres") as server:
        await server.create_database("shop")
        with psycopg.connect(server.url("shop"), autocommit=True) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 1 AS number")
        server.kill()
        await server.wait()
        await server.start()
        await server.wait_until_serving()
        with psycopg.connect(server.url("shop")) as connection:
            assert connection.execute("SELECT number FROM kept").fetchall() == [(1,)]


async def test_valkey_keeps_what_it_acknowledged_over_a_kill(tmp_path: Path, port: int) -> None:
    async with Valkey(tmp_path, port) as server:
        with redis.Redis.from_url(server.url) as client:
            # By its default it answers before it writes, whenever a flush of the last second takes long.
            assert client.config_get("appendfsync") == {"appendfsync": "always"}
            client.set("kept", "1")
        server.kill()
        await server.wait()
        await server.start()
        await server.wait_until_serving()
        with redis.Redis.from_url(server.url) as client:
            assert client.get("kept") == b"1"
