"""Runs the application until SIGTERM: not ready first, then no new connections, then what is in flight to its end."""

import asyncio
import gc
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import structlog
import uvicorn
from starlette.applications import Starlette

from employee_api.settings import EmployeeApiSettings

if TYPE_CHECKING:
    from chassis.server import Reloader

log = structlog.get_logger()

_BACKLOG = 2048
# Longer than a load balancer keeps its idle connections, or it would send requests into closing ones.
_KEEP_ALIVE_SECONDS = 75


class _Server(uvicorn.Server):
    """uvicorn, with signals left to `serve`: its own handling would stop at once, and end with the signal."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


async def serve(app: Starlette, settings: EmployeeApiSettings, stopping: Callable[[], None]) -> None:
    """Serve until SIGTERM or SIGINT. `stopping` is called when readiness shall end. Raises OSError for a busy port."""
    listener = _listen(settings.host, settings.port)
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    reloader = _reloader(loop, stopped) if settings.reload else None
    server = _Server(_config(app, settings))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(server.serve(sockets=[listener]), name="http")
        # What the start made stays for good: looking through it again would stop the event loop for 80 ms each time.
        gc.freeze()
        log.info("serving", port=listener.getsockname()[1])
        await stopped.wait()
        stopping()
        log.info("draining")
        # An address leaves the endpoints after SIGTERM, not before it: serve meanwhile.
        await asyncio.sleep(settings.drain_seconds)
        server.should_exit = True
    log.info("stopped")
    if reloader is not None and reloader.changed:
        os.execv(sys.executable, sys.orig_argv)  # noqa: S606 - the same program, its sources read anew


def _config(app: Starlette, settings: EmployeeApiSettings) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=_BACKLOG,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=max(1, round(settings.grace_seconds)),
    )


def _reloader(loop: asyncio.AbstractEventLoop, stopped: asyncio.Event) -> "Reloader":
    from chassis.server import Reloader  # noqa: PLC0415 - brings gRPC along, which only development may cost

    return Reloader(loop, stopped)


def _listen(host: str, port: int) -> socket.socket:
    address = host.strip("[]")
    try:
        if ":" in address:
            both = address == "::" and socket.has_dualstack_ipv6()
            return socket.create_server((address, port), family=socket.AF_INET6, dualstack_ipv6=both, backlog=_BACKLOG)
        return socket.create_server((address, port), backlog=_BACKLOG)
    except OSError as error:
        raise OSError(f"PORT: can't listen on {host}:{port}: {error.strerror}") from error
