"""A grpc.aio server in which a malformed call can't break other calls."""
# ruff: noqa: SLF001 - grpc.aio has no public API for this; uv.lock pins grpcio's version

import asyncio
from collections.abc import Coroutine
from typing import Any

import grpc
from grpc._cython import cygrpc
from grpc.aio import _server
from typing_extensions import override


class Server(_server.Server):
    """Supports only handlers made by `grpc.stream_unary_rpc_method_handler` or `stream_stream_rpc_method_handler`."""

    def __init__(self, options: list[tuple[str, Any]]) -> None:
        self._loop = cygrpc.get_working_loop()
        self._server = _AioServer(self._loop, None, (), (), (*options,), None)


class _AioServer(cygrpc.AioServer):  # type: ignore[misc]
    """Accepts each method's calls in a separate loop.

    grpc.aio itself accepts all calls in a single loop. A method name that isn't UTF-8 makes that loop fail, which ends
    the server. After accepting a call, that loop also starts waiting for every registered method again, which is slow.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}
        self._calls: set[asyncio.Task[None]] = set()

    @override
    def add_registered_method_handlers(self, method_handlers: dict[str, Any]) -> None:
        super().add_registered_method_handlers(method_handlers)
        self._handlers |= method_handlers

    @override
    async def _request_registered_call(self, method: bytes) -> None:
        name, loop = method.decode(), asyncio.get_running_loop()
        handler = self._handlers[name]
        serve = cygrpc._handle_stream_stream_rpc if handler.response_streaming else cygrpc._handle_stream_unary_rpc
        while True:
            state = await super()._request_registered_call(method)
            self._start_call(serve(handler, state, loop), state, loop, name)

    @override
    async def _request_call(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            state = await super()._request_call()
            context = cygrpc._ServicerContext(state, None, None, loop)
            refuse = context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
            self._start_call(refuse, state, loop, "unknown")

    def _start_call(self, serve: Coroutine[Any, Any, None], state: Any, loop: Any, name: str) -> None:
        call = loop.create_task(cygrpc._schedule_rpc_coro(serve, state, loop, name))
        self._calls.add(call)  # keep a reference, because asyncio only keeps weak ones
        call.add_done_callback(self._calls.discard)
