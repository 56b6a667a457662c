import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import redis

from chassis.errors import FailedPrecondition
from shop_cli.local.postgres import Postgres
from shop_cli.local.stores import Valkey, data_stores
from shop_cli.local.supervision import state_of


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder whose path is short enough for a Unix socket."""
    with tempfile.TemporaryDirectory(prefix="shop-", ignore_cleanup_errors=True) as name:
        yield Path(name) / "postgres"


async def test_all_processes_of_a_postgres_freeze_continue_and_are_killed(folder: Path) -> None:
    async with Postgres(folder) as server:
        connection = await psycopg.AsyncConnection.connect(server.url("postgres"), autocommit=True)
        server.pause()
        statement = asyncio.create_task(connection.execute("SELECT 1"))
        assert await asyncio.wait({statement}, timeout=0.3) == (set(), {statement})
        assert await state_of(server) == "frozen"
        server.resume()
        await statement
        server.kill()
        await server.wait()
        with pytest.raises(psycopg.OperationalError):
            await connection.execute("SELECT 1")
        await server.start()  # the server can start at once, because no old process holds its shared memory
        await server.wait_until_serving()
        assert await server.execute("SELECT 1") == [(1,)]


async def test_valkey_has_acknowledged_data_after_a_kill(tmp_path: Path) -> None:
    async with Valkey(tmp_path) as server:
        with redis.Redis.from_url(server.url) as client:
            # With the default, everysec, Valkey acknowledges writes before they are on disk.
            assert client.config_get("appendfsync") == {"appendfsync": "always"}
            client.set("kept", "1")
        server.kill()
        await server.wait()
        await server.start()
        await server.wait_until_serving()
        with redis.Redis.from_url(server.url) as client:
            assert client.get("kept") == b"1"


async def test_a_folder_whose_path_is_too_long_for_a_socket_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FailedPrecondition, match="`--folder`"):
        async with data_stores(tmp_path / ("x" * 100)):
            pass
