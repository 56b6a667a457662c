"""The baseline of the benchmarks: a bare grpc.aio server on uvloop that does nothing but echo."""

import asyncio
import os
from typing import Any

import grpc
import uvloop

from shop import cart_pb2, cart_pb2_grpc, empty_pb2

Context = grpc.aio.ServicerContext[Any, Any]


class Echo(cart_pb2_grpc.CartServiceServicer):
    async def GetCart(self, request: cart_pb2.GetCartRequest, context: Context) -> cart_pb2.Cart:
        return cart_pb2.Cart(user_id=request.user_id)

    async def AddItem(self, request: cart_pb2.AddItemRequest, context: Context) -> empty_pb2.Empty:
        return empty_pb2.Empty()

    async def EmptyCart(self, request: cart_pb2.EmptyCartRequest, context: Context) -> empty_pb2.Empty:
        return empty_pb2.Empty()


async def main() -> None:
    server = grpc.aio.server()
    cart_pb2_grpc.add_CartServiceServicer_to_server(Echo(), server)
    server.add_insecure_port(f"127.0.0.1:{os.environ['PORT']}")
    await server.start()
    await asyncio.Event().wait()


uvloop.run(main())
