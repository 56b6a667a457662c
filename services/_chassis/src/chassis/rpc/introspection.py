"""What every port says about itself: health, and reflection in both versions of its protocol."""

from collections.abc import Sequence
from typing import Any

import grpc
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pool import Default
from grpc_health.v1 import health, health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2

# grpcio-reflection has only the second one. Their messages are the same on the wire.
_REFLECTION = ("grpc.reflection.v1.ServerReflection", reflection.SERVICE_NAME)


class Health(health.aio.HealthServicer):
    """Adds `List` of these names, where the library's own servicer would fail with a traceback in the log."""

    names: Sequence[str] = ()

    async def List(self, _request: object, context: Any) -> Any:
        requests = {name: health_pb2.HealthCheckRequest(service=name) for name in self.names}
        statuses = {name: await self.Check(request, context) for name, request in requests.items()}
        return health_pb2.HealthListResponse(statuses=statuses)  # type: ignore[attr-defined]


class _Descriptors:
    """The default pool of descriptors. It also finds the file of a method, by whose name clients describe it."""

    def __getattr__(self, name: str) -> Any:
        return getattr(Default(), name)

    def FindFileContainingSymbol(self, symbol: str) -> FileDescriptor:
        try:
            return Default().FindFileContainingSymbol(symbol)
        except KeyError:
            return Default().FindMethodByName(symbol).containing_service.file


def reflection_handlers(service_names: Sequence[str]) -> list[grpc.GenericRpcHandler]:
    """Return handlers of reflection, which lists these services, health and itself."""
    names = [*service_names, health.SERVICE_NAME, reflection.SERVICE_NAME]
    handler: grpc.RpcMethodHandler[Any, Any] = grpc.stream_stream_rpc_method_handler(
        reflection.aio.ReflectionServicer(names, _Descriptors()).ServerReflectionInfo,
        reflection_pb2.ServerReflectionRequest.FromString,
        reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    return [grpc.method_handlers_generic_handler(name, {"ServerReflectionInfo": handler}) for name in _REFLECTION]
