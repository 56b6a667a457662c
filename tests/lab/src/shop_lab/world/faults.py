"""Faults of connections, which proxies inject, and of processes, their disks and their databases."""

import asyncio
import resource
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from chassis.sql.url import sqlite_path
from shop_cli.local.processes import Process
from shop_kit.databases import execute
from shop_kit.tcp_proxy import Mode, TcpProxy
from shop_lab.world.skewed_clock import AHEAD_SECONDS, MODULE

_FREE_BYTES = 16_384
_LOCK_SECONDS = 5.0
_DELAY_SECONDS = 0.15
_SLOW_SECONDS, _COLLECT_SECONDS = 0.6, 0.3
"""How long requests are delayed, so that many are on their way, and then held, before their clients are cut off."""


async def disturb(links: Sequence[TcpProxy], mode: Mode, seconds: float) -> None:
    """Delay, duplicate, cut or silence the connections of all proxies for a time."""
    if mode == "duplicate":  # applies to new connections only
        _set_modes(links, "reset")
    _set_modes(links, mode)
    await asyncio.sleep(seconds)
    if mode == "duplicate":
        _set_modes(links, "reset")
    _set_modes(links, "pass")


def _set_modes(links: Sequence[TcpProxy], mode: Mode) -> None:
    for link in links:
        link.set_mode(mode, _DELAY_SECONDS)


async def cut_off_clients(link: TcpProxy) -> asyncio.Event:
    """Delay and hold requests, then cut off their clients; the requests arrive once the returned event is set."""
    link.set_mode("delay", _DELAY_SECONDS)
    await asyncio.sleep(_SLOW_SECONDS)
    link.set_mode("blackhole")
    await asyncio.sleep(_COLLECT_SECONDS)
    released = link.cut_off_clients()
    link.set_mode("pass")
    return released


@contextmanager
def replaced(links: Sequence[TcpProxy], *addresses: str) -> Iterator[None]:
    """Connect the callers of each proxy to another address while in the context."""
    originals = [link.target for link in links]
    for link, address in zip(links, addresses, strict=True):
        link.redirect(address)
    try:
        yield
    finally:
        for link, original in zip(links, originals, strict=True):
            link.redirect(original)


@contextmanager
def full_disk(pid: int | None, file: Path) -> Iterator[None]:
    """Limit the size of a process's files to little more than this file's: writes fail halfway, as on a full disk."""
    if pid is None:
        raise AssertionError
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    size = file.stat().st_size if file.exists() else 0
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size + _FREE_BYTES, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)


@contextmanager
def skewed_clock(process: Process, ahead_seconds: float) -> Iterator[dict[str, str]]:
    """Let the clock of a process's database be wrong while in the context.

    Yield the variables with which SQLite's is wrong in `skewed_clock`. Until now the clock has been steady for long.
    """
    url = process.environment["DATABASE_URL"]
    execute(url, f"UPDATE retention SET seen_at = {time.time()}, steady_since = 0")  # noqa: S608 - a number
    if sqlite_path(url) is None:
        execute(url, f"UPDATE skewed.clock SET ahead = make_interval(secs => {ahead_seconds})")  # noqa: S608
    try:
        yield {MODULE: process.program.module, AHEAD_SECONDS: str(ahead_seconds)}
    finally:
        if sqlite_path(url) is None:
            execute(url, "UPDATE skewed.clock SET ahead = make_interval()")


@contextmanager
def locked(database_url: str) -> Iterator[None]:
    """Hold the lock that a SQLite database has for all its writers."""
    path = sqlite_path(database_url)
    if path is None:
        raise AssertionError
    with closing(sqlite3.connect(path, isolation_level=None, timeout=_LOCK_SECONDS)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")
