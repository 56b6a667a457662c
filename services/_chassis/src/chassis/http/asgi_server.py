"""uvicorn with limits, without its signal handling, and without its clock, which would wake an idle process."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from typing_extensions import override

from chassis.http.protocol import ConnectionGate, ConnectionLimits, LimitedProtocol


class AsgiServer(uvicorn.Server):
    """Serves an application until `stop` is called. `options` are those of uvicorn.Config.

    The application gets no lifespan events, and no response has a Date header but the application's own.
    """

    def __init__(self, app: ASGIApp, limits: ConnectionLimits | None = None, **options: Any) -> None:
        gate = ConnectionGate(limits or ConnectionLimits())
        config = uvicorn.Config(
            app,
            http=partial(LimitedProtocol, gate=gate),  # type: ignore[arg-type]  # uvicorn only calls it
            # An upgraded connection would no longer count.
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            date_header=False,
            server_header=False,
            # It would trust 127.0.0.1; `chassis.http.trusted_proxies` trusts those of the settings.
            proxy_headers=False,
            **options,
        )
        super().__init__(config)
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        """Accept no more connections, and end `serve` when the requests in flight are finished."""
        self.should_exit = True
        self._stopped.set()

    @override
    async def main_loop(self) -> None:
        await self._stopped.wait()

    @contextmanager
    @override
    def capture_signals(self) -> Iterator[None]:
        yield
