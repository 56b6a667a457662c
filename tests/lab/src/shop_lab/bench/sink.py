"""A collector that discards what it receives, so that services pay the real cost of telemetry: `sink.py PORT`."""

import asyncio
import sys
from typing import Any

import grpc
import uvloop

SIGNALS = ("trace.v1.Trace", "metrics.v1.Metrics", "logs.v1.Logs")


async def discard(_raw: bytes, _context: Any) -> bytes:
    return b""


async def main(port: str) -> None:
    export: Any = {"Export": grpc.unary_unary_rpc_method_handler(discard)}
    server = grpc.aio.server()
    for signal in SIGNALS:
        name = f"opentelemetry.proto.collector.{signal}Service"
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(name, export)])
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1]))
