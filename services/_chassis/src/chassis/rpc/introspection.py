"""What every port says about itself: health, and reflection in both versions of its protocol."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import grpc
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pool import Default
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2
from grpc_health.v1.health import SERVICE_NAME
from grpc_reflection.v1alpha import reflection, reflection_pb2

from chassis.errors import InvalidArgument
from chassis.rpc.limits import Limiter, Waits
from chassis.rpc.serving import ServicerContext, decoder
from chassis.rpc.status import to_status

# grpcio-reflection has only the second one. Their messages are the same on the wire.
_REFLECTION = ("grpc.reflection.v1.ServerReflection", reflection.SERVICE_NAME)


class Health:
    """The status of each service, and of the process under the empty name.

    The servicer of grpcio-health-checking holds a lock while it writes: a client that reads nothing would stop it.
    """

    def __init__(self) -> None:
        self._statuses: dict[str, Any] = {}
        self._changed = asyncio.Event()

    def set(self, name: str, status: Any) -> None:
        self._statuses[name] = status
        self._changed.set()
        self._changed = asyncio.Event()

    async def check(self, request: Any, context: ServicerContext) -> Message:
        if request.service not in self._statuses:
            await context.abort(grpc.StatusCode.NOT_FOUND)
        return health_pb2.HealthCheckResponse(status=self._statuses[request.service])

    async def list(self, _request: object, _context: object) -> Message:
        statuses = {name: health_pb2.HealthCheckResponse(status=status) for name, status in self._statuses.items()}
        return health_pb2.HealthListResponse(statuses=statuses)  # type: ignore[attr-defined, no-any-return]

    async def watch(self, request: Any, context: ServicerContext) -> None:
        sent = None
        while True:
            changed = self._changed
            status = self._statuses.get(request.service, health_pb2.HealthCheckResponse.SERVICE_UNKNOWN)
            if status != sent:
                await context.write(health_pb2.HealthCheckResponse(status=status))
            sent = status
            await changed.wait()


class _Descriptors:
    """The default pool of descriptors. It also finds the file of a method, by whose name clients describe it."""

    def __getattr__(self, name: str) -> Any:
        return getattr(Default(), name)

    def FindFileContainingSymbol(self, symbol: str) -> FileDescriptor:
        try:
            return Default().FindFileContainingSymbol(symbol)
        except KeyError:
            return Default().FindMethodByName(symbol).containing_service.file


async def _decode(kind: Any, raw: Any, context: ServicerContext) -> Any:
    """Return the request of this kind, or abort the call if it is malformed."""
    try:
        return decoder(kind.FromString, kind.DESCRIPTOR)(raw)
    except InvalidArgument as error:
        await context.abort_with_status(to_status(error))


def health_handlers(health: Health, limiter: Limiter, max_watches: int) -> "dict[str, grpc.RpcMethodHandler[Any, Any]]":
    """Return handlers of the methods of health. Of more watches than `max_watches` the oldest ends."""
    watches = Waits(limiter.refusals, "watch", max_watches)

    def unary(kind: Any, handle: Callable[[Any, Any], Awaitable[Message]]) -> "grpc.RpcMethodHandler[Any, Any]":
        async def serve(_requests: object, context: ServicerContext) -> bytes:
            request = await _decode(kind, await limiter.requests.wait(context, context.read()), context)
            return limiter.respond((await handle(request, context)).SerializeToString())

        return grpc.stream_unary_rpc_method_handler(serve)

    async def watch(_requests: object, context: ServicerContext) -> None:
        request = await _decode(
            health_pb2.HealthCheckRequest, await limiter.requests.wait(context, context.read()), context
        )
        await watches.wait(context, health.watch(request, context))

    return {
        "Check": unary(health_pb2.HealthCheckRequest, health.check),
        "List": unary(health_pb2.HealthListRequest, health.list),  # type: ignore[attr-defined]
        "Watch": _streams(watch, health_pb2.HealthCheckResponse),
    }


def reflection_handlers(service_names: Sequence[str], limiter: Limiter) -> list[grpc.GenericRpcHandler]:
    """Return handlers of reflection, which lists these services, health and itself."""
    names = [*service_names, SERVICE_NAME, reflection.SERVICE_NAME]
    servicer = reflection.aio.ReflectionServicer(names, _Descriptors())

    async def reflect(_requests: object, context: ServicerContext) -> None:
        async def requests() -> AsyncIterator[Any]:
            while (raw := await limiter.requests.wait(context, context.read())) is not grpc.aio.EOF:
                yield await _decode(reflection_pb2.ServerReflectionRequest, raw, context)

        responses: Any = servicer.ServerReflectionInfo(requests(), context)
        async for response in responses:
            await context.write(response)

    methods = {"ServerReflectionInfo": _streams(reflect, reflection_pb2.ServerReflectionResponse)}
    return [grpc.method_handlers_generic_handler(name, methods) for name in _REFLECTION]


def _streams(serve: Callable[[Any, Any], Awaitable[None]], response: Any) -> "grpc.RpcMethodHandler[Any, Any]":
    return grpc.stream_stream_rpc_method_handler(serve, None, response.SerializeToString)
