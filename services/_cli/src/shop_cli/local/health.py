"""Readiness checks of local processes."""

import asyncio
from contextlib import suppress

import grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

from shop_cli.local.workspace import Program

_TIMEOUT_SECONDS = 1.0
_CHECK_SECONDS = 20.0
_OPTIONS = (
    # Each check opens its own channel: a shared one would back off after a failed connection.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
    # For `wait_for_change`: a process that was frozen from outside does not respond.
    ("grpc.keepalive_time_ms", int(_CHECK_SECONDS * 1000)),
    ("grpc.keepalive_timeout_ms", 1_000),
    ("grpc.http2.max_pings_without_data", 0),
)


async def is_serving(program: Program, address: str) -> bool:
    """Return whether the program at `host:port` reports that it is ready, in time."""
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            # While the process starts, this is refused at once and costs less than a gRPC channel.
            host, _, port = address.rpartition(":")
            _, writer = await asyncio.open_connection(host, int(port))
            writer.close()
            return await (_grpc_is_serving if program.protocol == "grpc" else _http_is_serving)(address)
    except (OSError, TimeoutError, grpc.aio.AioRpcError):
        return False


async def wait_for_change(program: Program, address: str) -> None:
    """Wait until a serving program may have stopped serving; return within 20 s if it no longer responds.

    A gRPC service reports changes itself, which costs it far less than regular checks.
    """
    if program.protocol != "grpc":
        await asyncio.sleep(_CHECK_SECONDS)
        return
    with suppress(grpc.aio.AioRpcError):
        async with grpc.aio.insecure_channel(address, options=_OPTIONS) as channel:
            watch = channel.unary_stream(
                "/grpc.health.v1.Health/Watch", HealthCheckRequest.SerializeToString, HealthCheckResponse.FromString
            )
            async for response in watch(HealthCheckRequest()):
                if response.status != HealthCheckResponse.SERVING:
                    return


async def _grpc_is_serving(address: str) -> bool:
    async with grpc.aio.insecure_channel(address, options=_OPTIONS) as channel:
        check = channel.unary_unary(
            "/grpc.health.v1.Health/Check", HealthCheckRequest.SerializeToString, HealthCheckResponse.FromString
        )
        response = await check(HealthCheckRequest())
    return bool(response.status == HealthCheckResponse.SERVING)


async def _http_is_serving(address: str) -> bool:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(f"GET /readyz HTTP/1.0\r\nHost: {address}\r\n\r\n".encode())
        status_line = await reader.readline()
    finally:
        writer.close()
    return status_line.split()[1:2] == [b"200"]
