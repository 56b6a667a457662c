"""Serves the application until SIGTERM, then drains: not ready, no new connections, requests in flight completed."""

import asyncio
import gc
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import structlog
import uvicorn
from typing_extensions import override

from employee_api.app import EmployeeApi
from employee_api.settings import EmployeeApiSettings

if TYPE_CHECKING:
    from chassis.server import Reloader

log = structlog.get_logger()

_BACKLOG = 2048
# Longer than load balancers keep idle connections, or they would send requests to connections that are closing.
_KEEP_ALIVE_SECONDS = 75


class _Server(uvicorn.Server):
    """uvicorn without its signal handling, which would stop at once and exit with the signal's status."""

    @contextmanager
    @override
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(api: EmployeeApi, settings: EmployeeApiSettings) -> None:
    """Serve until SIGTERM or SIGINT, then drain. Raises OSError if the port is in use."""
    listener = _listen(settings.host, settings.port)
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    reloader = _reloader(loop, stopped) if settings.reload else None
    server = _Server(_config(api, settings))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(server.serve(sockets=[listener]), name="http")
        # Objects created at the start live as long as the process; scanning them would stop the event loop for 80 ms.
        gc.freeze()
        log.info("serving", port=listener.getsockname()[1])
        await stopped.wait()
        api.begin_shutdown()
        log.info("draining")
        # Endpoints are removed after SIGTERM, not before it: serve meanwhile.
        await asyncio.sleep(settings.drain_seconds)
        server.should_exit = True
    log.info("stopped")
    if reloader is not None and reloader.changed:
        os.execv(sys.executable, sys.orig_argv)  # noqa: S606 - the same program with its changed sources


def _config(api: EmployeeApi, settings: EmployeeApiSettings) -> uvicorn.Config:
    return uvicorn.Config(
        api.asgi,
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=_BACKLOG,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=max(1, round(settings.grace_seconds)),
    )


def _reloader(loop: asyncio.AbstractEventLoop, stopped: asyncio.Event) -> "Reloader":
    from chassis.server import Reloader  # noqa: PLC0415 - imports gRPC, which only development needs

    return Reloader(loop, stopped)


def _listen(host: str, port: int) -> socket.socket:
    address = host.strip("[]")
    try:
        if ":" in address:
            dual_stack = address == "::" and socket.has_dualstack_ipv6()
            return socket.create_server(
                (address, port), family=socket.AF_INET6, dualstack_ipv6=dual_stack, backlog=_BACKLOG
            )
        return socket.create_server((address, port), backlog=_BACKLOG)
    except OSError as error:
        raise OSError(f"PORT: can't listen on {host}:{port}: {error.strerror}") from error
