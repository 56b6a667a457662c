"""Serve an ASGI application on a real port."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from starlette.types import ASGIApp


@asynccontextmanager
async def serve_http(app: ASGIApp) -> AsyncIterator[str]:
    """Serve the application on a free port of loopback; yield its URL."""
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off", timeout_keep_alive=3600))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = asyncio.create_task(server.serve([listener]), name="HTTP server of a test")
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            await serving
