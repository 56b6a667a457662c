import asyncio
from contextlib import closing
from typing import Any

import grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

from chassis.rpc.client import OPTIONS
from chassis.rpc.connection import open_channel
from chassis.tls.certificates import Identity
from shop_cli.local.workspace import Program

# Services report that they are not ready only if their database does not answer.
NO_DATABASE = "not ready: its database does not answer"
_TIMEOUT_SECONDS = 3.0  # longer than an HTTP service waits for its database (2 s)


async def is_serving(program: Program, address: str, identity: Identity | None = None) -> bool | None:
    """Return whether the program at `host:port` reports that it is ready; None if it does not respond in time."""
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            # Try a plain TCP connection first: while a service starts, this costs less than opening a gRPC channel.
            host, _, port = address.rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            with closing(writer):
                if program.protocol == "grpc":
                    return await _grpc_is_serving(address, identity)
                writer.write(f"GET /readyz HTTP/1.0\r\nHost: {address}\r\n\r\n".encode())
                return (await reader.readline()).split()[1:2] == [b"200"]
    except (OSError, TimeoutError, grpc.aio.AioRpcError):
        return None


async def _grpc_is_serving(address: str, identity: Identity | None) -> bool:
    # Use the options that services use: if services can't reach this one, say because of a proxy, it isn't ready.
    async with open_channel(address, identity, OPTIONS) as channel:
        health: Any = HealthStub(channel)
        response = await health.Check(HealthCheckRequest())
    return bool(response.status == HealthCheckResponse.SERVING)
