"""The health service, which runs on every port, and the reflection service."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import grpc
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pool import Default
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2
from grpc_health.v1.health import SERVICE_NAME
from grpc_reflection.v1alpha import reflection, reflection_pb2

from chassis.errors import InvalidArgument
from chassis.rpc.calls import ServicerContext
from chassis.rpc.limits import OPEN_CALL, Peers
from chassis.rpc.serving import decoder
from chassis.rpc.status import to_status

# grpcio-reflection implements only v1alpha, whose messages have the same wire format as v1's.
_REFLECTION = ("grpc.reflection.v1.ServerReflection", reflection.SERVICE_NAME)


class Health:
    """Reports the status of each service and, under the empty name, of the process.

    This replaces grpcio-health-checking's servicer, which holds a lock while it writes: a client that stopped reading
    would block all other clients' health checks.
    """

    def __init__(self) -> None:
        self._statuses: dict[str, Any] = {}
        self._changed = asyncio.Event()

    def set(self, name: str, status: Any) -> None:
        self._statuses[name] = status
        self._changed.set()
        self._changed = asyncio.Event()

    async def check(self, requests: AsyncIterator[Any], context: ServicerContext) -> AsyncIterator[Message]:
        async for request in requests:
            if request.service not in self._statuses:
                await context.abort(grpc.StatusCode.NOT_FOUND)
            yield health_pb2.HealthCheckResponse(status=self._statuses[request.service])

    async def list(self, requests: AsyncIterator[Any], _context: object) -> AsyncIterator[Message]:
        async for _ in requests:
            found = {name: health_pb2.HealthCheckResponse(status=status) for name, status in self._statuses.items()}
            yield health_pb2.HealthListResponse(statuses=found)  # type: ignore[attr-defined]

    async def watch(self, requests: AsyncIterator[Any], _context: object) -> AsyncIterator[Message]:
        async for request in requests:
            sent = None
            while True:
                changed = self._changed
                status = self._statuses.get(request.service, health_pb2.HealthCheckResponse.SERVICE_UNKNOWN)
                if status != sent:
                    yield health_pb2.HealthCheckResponse(status=status)
                sent = status
                await changed.wait()


class _Descriptors:
    """The default descriptor pool, extended to find files by method name, because clients may look up methods."""

    def __getattr__(self, name: str) -> Any:
        return getattr(Default(), name)

    def FindFileContainingSymbol(self, symbol: str) -> FileDescriptor:
        try:
            return Default().FindFileContainingSymbol(symbol)
        except KeyError:
            return Default().FindMethodByName(symbol).containing_service.file


# Health and reflection calls don't count as in flight, because probes must not be shed.
def health_handlers(health: Health, peers: Peers) -> "dict[str, grpc.RpcMethodHandler[Any, Any]]":
    return {
        "Check": _handler(peers, health_pb2.HealthCheckRequest, health.check),
        "List": _handler(peers, health_pb2.HealthListRequest, health.list),  # type: ignore[attr-defined]
        "Watch": _handler(peers, health_pb2.HealthCheckRequest, health.watch),
    }


def reflection_handlers(
    service_names: Sequence[str], peers: Peers
) -> "dict[str, dict[str, grpc.RpcMethodHandler[Any, Any]]]":
    names = [*service_names, SERVICE_NAME, reflection.SERVICE_NAME]
    servicer = reflection.aio.ReflectionServicer(names, _Descriptors())
    handler = _handler(peers, reflection_pb2.ServerReflectionRequest, servicer.ServerReflectionInfo)
    return {name: {"ServerReflectionInfo": handler} for name in _REFLECTION}


def _handler(peers: Peers, kind: Any, serve: Callable[[Any, Any], Any]) -> "grpc.RpcMethodHandler[Any, Any]":
    decode = decoder(kind.FromString, kind.DESCRIPTOR)

    async def received(context: ServicerContext) -> AsyncIterator[Message]:
        peer = context.peer()
        while (raw := await peers.wait(context, context.read(), peer)) is not grpc.aio.EOF:
            peers.hold(peer, raw, OPEN_CALL)
            try:
                request = decode(raw)
            except InvalidArgument as error:
                await context.abort_with_status(to_status(error))
            yield request

    async def respond(_requests: object, context: ServicerContext) -> None:
        async for response in serve(received(context), context):
            await context.write(response.SerializeToString())

    # A stream without serializers: otherwise, grpc.aio would mishandle malformed and missing requests.
    return grpc.stream_stream_rpc_method_handler(respond)
