"""Valkey still has what it acknowledged after a kill and a restart."""

from pathlib import Path

import redis

from shop_cli.local.stores import Valkey


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
