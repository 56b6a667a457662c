"""The health service, which every port serves, and the reflection service."""

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
from chassis.rpc.limits import MAX_WAITS, NO_REQUEST, Waits
from chassis.rpc.serving import decoder
from chassis.rpc.status import to_status
from chassis.telemetry.instruments import Telemetry
from chassis.telemetry.refusals import Refusals

# grpcio-reflection only implements v1alpha; its messages are the same as v1's on the wire.
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
    """The default descriptor pool, extended to find files by method name, because clients may ask about a method."""

    def __getattr__(self, name: str) -> Any:
        return getattr(Default(), name)

    def FindFileContainingSymbol(self, symbol: str) -> FileDescriptor:
        try:
            return Default().FindFileContainingSymbol(symbol)
        except KeyError:
            return Default().FindMethodByName(symbol).containing_service.file


class Introspection:
    """Creates health and reflection handlers. If over `max_calls` are open, the connection with the most loses one."""

    def __init__(self, telemetry: Telemetry, max_calls: int) -> None:
        # Limit probes separately: otherwise, clients that exhaust a service's limits would get the pod restarted.
        refusals = Refusals("health", telemetry, NO_REQUEST, "open_call")
        self.requests = Waits(refusals, NO_REQUEST, MAX_WAITS)
        self._calls = Waits(refusals, "open_call", max_calls)

    def health(self, health: Health) -> "dict[str, grpc.RpcMethodHandler[Any, Any]]":
        return {
            "Check": self._handler(health_pb2.HealthCheckRequest, health.check),
            "List": self._handler(health_pb2.HealthListRequest, health.list),  # type: ignore[attr-defined]
            "Watch": self._handler(health_pb2.HealthCheckRequest, health.watch),
        }

    def reflection(self, service_names: Sequence[str]) -> "dict[str, dict[str, grpc.RpcMethodHandler[Any, Any]]]":
        names = [*service_names, SERVICE_NAME, reflection.SERVICE_NAME]
        servicer = reflection.aio.ReflectionServicer(names, _Descriptors())
        handler = self._handler(reflection_pb2.ServerReflectionRequest, servicer.ServerReflectionInfo)
        return {name: {"ServerReflectionInfo": handler} for name in _REFLECTION}

    def _handler(self, kind: Any, serve: Callable[[Any, Any], Any]) -> "grpc.RpcMethodHandler[Any, Any]":
        decode = decoder(kind.FromString, kind.DESCRIPTOR)

        async def received(context: ServicerContext) -> AsyncIterator[Message]:
            while (raw := await self.requests.wait(context, context.read(), context.peer())) is not grpc.aio.EOF:
                try:
                    request = decode(raw)
                except InvalidArgument as error:
                    await context.abort_with_status(to_status(error))
                yield request

        async def respond(context: ServicerContext) -> None:
            async for response in serve(received(context), context):
                await context.write(response.SerializeToString())

        async def limited(_requests: object, context: ServicerContext) -> None:
            await self._calls.wait(context, respond(context), context.peer())

        # `serving.WrappingRegistrar` explains why this is a stream without serializers.
        return grpc.stream_stream_rpc_method_handler(limited)
