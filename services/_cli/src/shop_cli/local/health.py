"""Asks a process whether it serves."""

import asyncio

import grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

from shop_cli.local.workspace import Program

_TIMEOUT_SECONDS = 1.0
# A channel of its own for each question: a shared one would remember a failed connection and wait before the next.
_OPTIONS = (("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0))


async def is_serving(program: Program, address: str) -> bool:
    """Whether the program at `host:port` says that it is ready. Silence, too, is a no."""
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            await _connect(address)
            return await (_grpc_is_serving if program.protocol == "grpc" else _http_is_serving)(address)
    except (OSError, TimeoutError, grpc.aio.AioRpcError):
        return False


async def _connect(address: str) -> None:
    """Cheaper than a channel while a process starts, and refused at once."""
    host, _, port = address.rpartition(":")
    _, writer = await asyncio.open_connection(host, int(port))
    writer.close()


async def _grpc_is_serving(address: str) -> bool:
    async with grpc.aio.insecure_channel(address, options=_OPTIONS) as channel:
        check = channel.unary_unary(
            "/grpc.health.v1.Health/Check", HealthCheckRequest.SerializeToString, HealthCheckResponse.FromString
        )
        answer = await check(HealthCheckRequest())
    return bool(answer.status == HealthCheckResponse.SERVING)


async def _http_is_serving(address: str) -> bool:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(f"GET /readyz HTTP/1.0\r\nHost: {address}\r\n\r\n".encode())
        status_line = await reader.readline()
    finally:
        writer.close()
    return status_line.split()[1:2] == [b"200"]
