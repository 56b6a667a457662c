"""PostgreSQL still has what it acknowledged after a kill, and after a failover as far as replication promises it."""

import asyncio
import itertools
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import LiteralString

import psycopg
import pytest

from shop_cli.local.ports import reserved
from shop_lab.world.faulty_postgres import FaultyPostgres
from shop_lab.world.postgres_cluster import SERVERS, PostgresCluster, Replication


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that other users may enter, which pytest's own need not be."""
    with tempfile.TemporaryDirectory(prefix="shop-postgres-", ignore_cleanup_errors=True) as name:
        yield Path(name)


@pytest.fixture
def ports() -> Iterator[list[int]]:
    with reserved(SERVERS) as ports:
        yield ports


def execute(url: str, statement: LiteralString, *parameters: int) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement, parameters)


def numbers(url: str) -> list[int]:
    with psycopg.connect(url) as connection:
        return [number for (number,) in connection.execute("SELECT number FROM kept ORDER BY number")]


async def test_postgres_has_committed_data_after_a_kill(folder: Path) -> None:
    async with await FaultyPostgres.create(folder / "postgres") as server:
        await server.create_database("shop")
        execute(server.url("shop"), "CREATE TABLE kept AS SELECT 1 AS number")
        server.kill()
        await server.wait()
        await server.start()
        await server.wait_until_serving()
        assert numbers(server.url("shop")) == [1]


@pytest.mark.long
async def test_clients_find_the_new_primary_after_each_of_two_failovers(folder: Path, ports: list[int]) -> None:
    async with PostgresCluster.running(folder / "cluster", ports, "sync") as cluster:
        await cluster.create_database("shop")
        url = cluster.url("shop")
        execute(url, "CREATE TABLE kept (number integer)")
        primaries = [cluster.primary]
        for number in (1, 2):
            execute(url, "INSERT INTO kept VALUES (%s)", number)
            await cluster.fail_over(0)
            primaries.append(cluster.primary)
        execute(url, "INSERT INTO kept VALUES (3)")
        assert numbers(url) == [1, 2, 3]
        assert primaries[0] is not primaries[1] is not primaries[2]


async def commit_until_failover(folder: Path, ports: list[int], replication: Replication) -> tuple[set[int], set[int]]:
    """Commit numbers until the primary dies; return those that were acknowledged, and those that it left behind."""
    async with PostgresCluster.running(folder / "cluster", ports, replication) as cluster:
        await cluster.create_database("shop")
        url = cluster.url("shop")
        execute(url, "CREATE TABLE kept (number integer)")
        async with asyncio.TaskGroup() as tasks:
            committing = tasks.create_task(asyncio.to_thread(commit_until_error, url))
            tasks.create_task(cluster.fail_over(1.0))
        return set(committing.result()), set(numbers(url))


def commit_until_error(url: str) -> list[int]:
    acknowledged: list[int] = []
    with suppress(psycopg.OperationalError), psycopg.connect(url, autocommit=True) as connection:
        for number in itertools.count():
            connection.execute("INSERT INTO kept VALUES (%s)", [number])
            acknowledged.append(number)
    return acknowledged


@pytest.mark.long
async def test_a_failover_to_an_asynchronous_standby_loses_acknowledged_commits(folder: Path, ports: list[int]) -> None:
    acknowledged, left = await commit_until_failover(folder, ports, "async")
    assert left < acknowledged


@pytest.mark.long
async def test_a_failover_to_a_synchronous_standby_loses_no_acknowledged_commit(folder: Path, ports: list[int]) -> None:
    acknowledged, left = await commit_until_failover(folder, ports, "sync")
    assert acknowledged <= left
