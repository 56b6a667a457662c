import asyncio
import gc
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import TypeVar

import structlog
import uvloop

from chassis.background import in_background
from chassis.proxies import ignore_proxies
from chassis.settings import ServerSettings, load, load_one
from chassis.sql.migrate import CONNECT_TIMEOUT_SECONDS, needs_migration
from chassis.sql.url import DatabaseUnusable, sqlite_path
from chassis.telemetry import logging, otlp
from chassis.telemetry.instruments import Telemetry
from chassis.telemetry.process_metrics import observe_volume, record_loop_lag

log = structlog.get_logger()

_RELOAD_SECONDS = 0.5
_MIGRATE_CONNECT_SECONDS = 300  # an init container waits while the cluster downloads PostgreSQL's image

SettingsT = TypeVar("SettingsT", bound=ServerSettings)

ReadinessCheck = Callable[[], Awaitable[None]]
"""Raises an error while the service is not ready. A check may query the service's own store, but never a peer: an
outage of one service must not make its callers unready."""

Serving = Callable[[SettingsT, Telemetry], AbstractAsyncContextManager[Mapping[str, int | None]]]
"""Returns a context manager that yields the ports, serves until its context exits, and then drains."""


def run_process(
    name: str,
    settings_type: type[SettingsT],
    serving: Serving[SettingsT],
    *,
    migrations: Path | None = None,
    connect_seconds: float = CONNECT_TIMEOUT_SECONDS,
) -> None:
    """Configure the process and serve until SIGTERM or SIGINT. If `serving` raises OSError, exit with its message.

    With the command-line argument `migrate`, migrate the database and exit. A service that has migrations may run
    without a database; its `database_url` is then empty. Wait up to `connect_seconds` (with `migrate`, five
    minutes) for PostgreSQL to accept connections.
    """
    if migrations is not None and sys.argv[1:] == ["migrate"]:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the kernel ignores SIGTERM for PID 1 without a handler
        _migrate(settings_type, migrations, _MIGRATE_CONNECT_SECONDS)
        return
    settings = load(settings_type)
    if not settings.use_http_proxy:
        ignore_proxies()
    url = "" if migrations is None else _migrate(settings_type, migrations, connect_seconds)
    telemetry = otlp.configure(name)
    logging.configure(name, level=settings.log_level, logger=telemetry.logger, final=True)
    if (path := sqlite_path(url)) is not None:
        observe_volume(telemetry, path)
    try:
        # uvloop serves 15 % more calls per second than asyncio's own loop.
        uvloop.run(_serve_until_stopped(serving, settings, telemetry))
    except OSError as error:
        sys.exit(str(error))
    finally:
        telemetry.shutdown()


def _migrate(settings_type: type[ServerSettings], migrations: Path, connect_seconds: float) -> str:
    """Run pending migrations of the database at DATABASE_URL, if it is set. Return the URL.

    A child process runs them, because this process would never free Alembic's 22 MiB of memory.
    """
    url: str = load_one(settings_type, "database_url").get_secret_value()  # migrations don't need the other settings
    try:
        pending = url and needs_migration(url, migrations, connect_seconds=connect_seconds)
    except DatabaseUnusable as error:
        sys.exit(str(error))
    if pending:
        command, databases = [sys.executable, "-P", "-m", "chassis.sql.migrate"], json.dumps({url: str(migrations)})
        if subprocess.run(command, input=databases, text=True, check=False).returncode:  # noqa: S603
            sys.exit(1)
    return url


async def _serve_until_stopped(serving: Serving[SettingsT], settings: SettingsT, telemetry: Telemetry) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    changed = asyncio.create_task(_stop_on_change(stopped, _modification_times())) if settings.reload else None
    loops = [partial(record_loop_lag, telemetry)] if telemetry.is_exported else []
    async with in_background(*loops), serving(settings, telemetry) as ports:
        # Exempt existing objects from garbage collection, because scanning them blocks the loop for 40 to 84 ms.
        gc.freeze()
        log.info("serving", **ports)
        await stopped.wait()
        log.info("draining")
    log.info("stopped")
    if changed is not None and changed.done():
        os.execv(sys.executable, sys.orig_argv)  # noqa: S606 - restarts this program with the changed sources


async def _stop_on_change(stopped: asyncio.Event, before: dict[Path, float]) -> None:
    """Set `stopped` when a source file changes. In development, changed files are copied into the pod."""
    while _modification_times() == before:  # noqa: ASYNC110 - asyncio has no event for file changes
        await asyncio.sleep(_RELOAD_SECONDS)
    stopped.set()


def _modification_times() -> dict[Path, float]:
    folders = Path(sys.modules["__main__"].__file__ or "").parent, Path(__file__).parent
    sources = [path for folder in folders for path in folder.rglob("*.py")]
    return {path: path.stat().st_mtime for path in sources if path.exists()}
