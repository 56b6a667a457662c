"""An OTLP receiver that discards everything, in its own process so that services pay the real cost of exporting."""

import asyncio
import os
from typing import Any

import grpc
import uvloop

_METHODS = [
    f"/opentelemetry.proto.collector.{kind}Service/Export"
    for kind in ("trace.v1.Trace", "metrics.v1.Metrics", "logs.v1.Logs")
]


class Sink(grpc.GenericRpcHandler):
    def service(self, handler_call_details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[Any, Any] | None":
        async def export(_raw: bytes, _context: object) -> bytes:
            return b""

        return grpc.unary_unary_rpc_method_handler(export) if handler_call_details.method in _METHODS else None


async def main() -> None:
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Sink(),))
    server.add_insecure_port(f"127.0.0.1:{os.environ['PORT']}")
    await server.start()
    await asyncio.Event().wait()


uvloop.run(main())
