"""A PostgreSQL primary with streaming standbys, one of which is promoted when the primary dies."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Literal, Self

from shop_cli.local.child_process import NotServing
from shop_cli.local.ports import HOST
from shop_lab.world.faulty_postgres import FaultyPostgres

Replication = Literal["async", "sync"]

SERVERS = 3
_READY_SECONDS = 30.0
_POLL_SECONDS = 0.05
_SETTINGS = {
    # The default of five seconds would be most of the time that a failover takes.
    "wal_retrieve_retry_interval": "200ms",
    # A standby that was behind finds what it lacks at the new primary.
    "wal_keep_size": "256MB",
}


class PostgresCluster:
    """A primary and two standbys; `running` starts them.

    Attributes:
        primary: the current one.
    """

    def __init__(self, ports: Sequence[int], replication: Replication) -> None:
        self._ports = ports
        synchronous = {"synchronous_standby_names": "ANY 1 (*)"} if replication == "sync" else {}
        # Each standby finds the current primary by itself.
        self._settings = {**_SETTINGS, **synchronous, "primary_conninfo": _conninfo(ports)}
        self._servers: list[FaultyPostgres] = []
        self.primary: FaultyPostgres

    @classmethod
    @asynccontextmanager
    async def running(cls, folder: Path, ports: Sequence[int], replication: Replication) -> AsyncIterator[Self]:
        """Start all servers, and stop them when the context is left.

        Args:
            folder: does not exist; for all data.
            ports: one per server, on loopback.
            replication: with `sync`, one standby has each commit before it is acknowledged; with `async` perhaps none.
        """
        cluster = cls(ports, replication)
        async with AsyncExitStack() as stack:
            cluster.primary = await FaultyPostgres.create(folder / "postgres-1", ports[0], cluster._settings)
            cluster._servers.append(await stack.enter_async_context(cluster.primary))
            for number, port in enumerate(ports[1:], start=2):
                primary = cluster.primary.url("postgres")
                standby = await FaultyPostgres.clone(folder / f"postgres-{number}", port, cluster._settings, primary)
                cluster._servers.append(await stack.enter_async_context(standby))
            await cluster._wait_until_replicating()
            yield cluster

    def url(self, database: str) -> str:
        """Return the URL of a database, which names all servers: clients find the primary."""
        hosts = ",".join(f"{HOST}:{port}" for port in self._ports)
        return f"postgresql://postgres@{hosts}/{database}?target_session_attrs=read-write"

    async def create_database(self, name: str) -> None:
        """Create an empty database."""
        await self.primary.create_database(name)

    async def fail_over(self, lag_seconds: float) -> int:
        """Kill the primary, promote the more advanced standby, and make the killed server a standby of that one.

        Args:
            lag_seconds: how long before its death the primary sends nothing more to its standbys.

        Returns:
            The bytes of the primary's log that no standby has: with asynchronous replication acknowledged commits.
        """
        killed = self.primary
        await _stop_sending(killed)
        await asyncio.sleep(lag_seconds)
        ((flushed,),) = await killed.execute("SELECT pg_current_wal_flush_lsn() - '0/0'")
        killed.kill()
        await killed.wait()
        standbys = [server for server in self._servers if server is not killed]
        received = [await _last_received(standby) for standby in standbys]
        self.primary = standbys[received.index(max(received))]
        await self.primary.execute("SELECT pg_promote(true, 30)")
        await killed.clone_again(self.primary.url("postgres"))
        await killed.start()
        await killed.wait_until_serving(_READY_SECONDS)
        await self._wait_until_replicating()
        return max(0, int(flushed) - max(received))

    async def _wait_until_replicating(self) -> None:
        async def all_stream() -> bool:
            rows = await self.primary.execute("SELECT 1 FROM pg_stat_replication WHERE state = 'streaming'")
            return len(rows) == len(self._servers) - 1

        await _wait_until(all_stream, "not all standbys follow the primary")


def _conninfo(ports: Sequence[int]) -> str:
    hosts = ",".join([HOST] * len(ports))
    return f"host={hosts} port={','.join(map(str, ports))} user=postgres target_session_attrs=read-write"


async def _stop_sending(primary: FaultyPostgres) -> None:
    """Freeze the processes that send the primary's log to its standbys."""
    for (pid,) in await primary.execute("SELECT pid FROM pg_stat_replication"):
        os.kill(pid, signal.SIGSTOP)


async def _last_received(standby: FaultyPostgres) -> int:
    """Return the end of the log that a standby has on disk, once it has received all that was sent to it."""

    async def has_received_all() -> bool:
        return not await standby.execute("SELECT 1 FROM pg_stat_wal_receiver WHERE status = 'streaming'")

    await _wait_until(has_received_all, "a standby still receives from a primary that is gone")
    ((received,),) = await standby.execute("SELECT pg_last_wal_receive_lsn() - '0/0'")
    return int(received)


async def _wait_until(condition: Callable[[], Awaitable[bool]], otherwise: str) -> None:
    """Wait until the condition holds. Raise NotServing, with the message `otherwise`, on timeout."""
    deadline = time.monotonic() + _READY_SECONDS
    while not await condition():
        if time.monotonic() > deadline:
            raise NotServing(otherwise)
        await asyncio.sleep(_POLL_SECONDS)
