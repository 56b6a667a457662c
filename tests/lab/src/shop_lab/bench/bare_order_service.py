"""The baseline of the cost table: a bare grpc.aio server on uvloop that makes the calls of an order and nothing else.

With `CALLS`, such as `127.0.0.1:7071/shop.CartService/GetCart,…`, PlaceOrder makes those calls one after the other.
"""

import asyncio
import os
from typing import Any

import grpc
import uvloop


class Bare(grpc.GenericRpcHandler):
    """Answers every call with an empty message."""

    def __init__(self, calls: list[tuple[str, str]]) -> None:
        channels = {address: grpc.aio.insecure_channel(address) for address, _ in calls}
        self._calls: list[Any] = [channels[address].unary_unary(method) for address, method in calls]

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[Any, Any]":
        return grpc.unary_unary_rpc_method_handler(self._respond)

    async def _respond(self, _request: bytes, _context: Any) -> bytes:
        for call in self._calls:
            await call(b"")
        return b""


async def main() -> None:
    calls = [tuple(each.split("/", 1)) for each in filter(None, os.environ.get("CALLS", "").split(","))]
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Bare([(address, f"/{method}") for address, method in calls]),))
    server.add_insecure_port(f"127.0.0.1:{os.environ['PORT']}")
    await server.start()
    await asyncio.Event().wait()


uvloop.run(main())
