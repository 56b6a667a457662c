"""Bare grpc.aio servers on uvloop, each a process of its own: `python bare_server.py echo|sink PORT`.

The echo is the baseline of the benchmarks. The sink discards telemetry, so that services pay the real cost of it.
"""

import asyncio
import sys
from typing import Any

import grpc
import uvloop

from shop.cart_pb2 import Cart, GetCartRequest


async def get_cart(request: GetCartRequest, _context: Any) -> Cart:
    return Cart(user_id=request.user_id)


async def discard(_raw: bytes, _context: Any) -> bytes:
    return b""


def handler_of(service: str, method: str, handle: Any) -> grpc.GenericRpcHandler:
    return grpc.method_handlers_generic_handler(service, {method: handle})


EXPORT: Any = grpc.unary_unary_rpc_method_handler(discard)
GET_CART = grpc.unary_unary_rpc_method_handler(get_cart, GetCartRequest.FromString, Cart.SerializeToString)
SIGNALS = ("trace.v1.Trace", "metrics.v1.Metrics", "logs.v1.Logs")
SERVERS = {
    "echo": [handler_of("shop.CartService", "GetCart", GET_CART)],
    "sink": [handler_of(f"opentelemetry.proto.collector.{signal}Service", "Export", EXPORT) for signal in SIGNALS],
}


async def main(name: str, port: str) -> None:
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(SERVERS[name])
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
